"""The verifier can say no: false claims and broken kernels are planted, and each must be refuted or left open.

Every plant is a wrong constant, exponent, sign or count somewhere in the library. The same claim holds without it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import verify
from bilevel_sym import (
    AID,
    BilevelProblem,
    Constants,
    MinimaxConstants,
    MinimaxProblem,
    StochasticProblem,
    hypergradient,
    implicit,
    linear_system,
    zoo,
)
from bilevel_sym.constants import Variant
from bilevel_sym.schedules import aid, escape, gdmax, inner, stochastic
from bilevel_sym.schedules.batches import concentration, gradient_terms, hessian_terms
from bilevel_sym.solvers import StocBiO, ineon
from bilevel_sym.tape import autodiff
from bilevel_sym.tape.arrays import ArraySession
from bilevel_sym.tape.model import Model
from verify import minimax_sites, rates, regularity, samples, stationary_balls, stocbio_bounds, visiting
from verify.bracket import Bracket
from verify.statements import corollaries, definitions, neon, tube
from verify.statements import escape as escape_claims
from verify.verdict import CheckResult, Verdict

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


# ---- problems on which the bounds are tight --------------------------------------------------------------------------


def witness() -> BilevelProblem:
    """|Hess Phi| is 80 of L_phi = 84; d2y_dx2 and the change of Hess Phi are near their bounds too."""
    return zoo.get("lphi_witness").problem


def line() -> BilevelProblem:
    """|grad Phi| = M + kappa M."""
    return BilevelProblem("x + y", "y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-2, 2)})


def steep() -> BilevelProblem:
    """|dy_dx| = ell/mu = 2."""
    return BilevelProblem("x*y/9 + y", "y**2/2 - 2*x*y", "x", "y", box={"x": (-1, 1), "y": (-3, 3)})


def easy() -> BilevelProblem:
    """kappa is nearly 1: a step of descent or of CG that is left out cannot hide."""
    return BilevelProblem("x*y", "y**2/2 + sin(y)/1000 - x*y", "x", "y", box={"x": (-1, 1), "y": (-3, 3)})


def easy_minimax() -> BilevelProblem:
    """The same for GDmax."""
    return MinimaxProblem("x*y - y**2/2 - sin(y)/1000", "x", "y", box={"x": (-1, 1), "y": (-3, 3)})


def bowl() -> BilevelProblem:
    """Phi = x^2/2, beside a lower level that does not matter: a step above 3/2 breaks the descent lemma."""
    return BilevelProblem("x**2/2 + y/1000", "y**2/2 - x*y/1000", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})


def skew() -> BilevelProblem:
    """d = n = 2 and g_xy is not symmetric."""
    box = {"x1": (-1, 1), "x2": (-1, 1), "y1": (-4, 4), "y2": (-4, 4)}
    lower = "y1**2 + 3*y2**2/2 - (x1 + x2)*y1 - x2*y2/3"
    return BilevelProblem("x1*y1 + cos(y2)", lower, "x1 x2", "y1 y2", box=box)


def curved() -> BilevelProblem:
    """d = n = 1, all third derivatives of g are alive, and cos is differentiated."""
    box = {"x": (-1, 1), "y": (-1, 1)}
    return BilevelProblem("cos(x)*y + x*y**2", "y**2 + y**3*x/9 + x**2*y**2/7 - sin(x)*y", "x", "y", box=box)


def twisted() -> BilevelProblem:
    """A minimax problem with d = n = 2, f_xy not symmetric, and a saddle point of Phi at 0."""
    box = {name: (-1, 1) for name in ("x1", "x2", "y1", "y2")}
    f = "x1**2/2 - x2**2 + x1*y2/2 + x2*y2/3 + x1*y1/5 - y1**2/2 - y2**2"
    return MinimaxProblem(f, "x1 x2", "y1 y2", box=box)


def ridge_of_phi() -> BilevelProblem:
    """A minimax problem in which Hess Phi changes by rho (1 + kappa)^3, nearly: y* = x, so that Phi'' is that of 2x."""
    return MinimaxProblem("sin(20*(x + y))/8000 + x*y - y**2/2", "x", "y", box={"x": (-1, 1), "y": (-2, 2)})


def saddle() -> BilevelProblem:
    return zoo.get("saddle", d=2).problem


def scalar() -> BilevelProblem:
    return zoo.get("scalar").problem


def noisy() -> BilevelProblem:
    """One variable on each level; rows of G differ in g_y, in g_xy and in g_yy."""
    data = [[-1], [0], [1]]
    return StochasticProblem(
        "x*y + xi*y/2", "y**2*(1 + zeta/8)/2 - x*y*(1 + zeta/9) + zeta*y/2", "x", "y", "xi", "zeta", data, data,
        box={"x": (-1, 1), "y": (-3, 3)},
    )  # fmt: skip


def stochastic_noise() -> BilevelProblem:
    return zoo.get("stochastic_noise").problem


# ---- how to plant ----------------------------------------------------------------------------------------------------


def modules() -> Iterator[Any]:
    names = [name for name in sys.modules if name.split(".")[0] in ("verify", "bilevel_sym")]
    return (sys.modules[name] for name in names)


def forget() -> None:
    """Empty every cache, so that neither a defect nor its absence is remembered."""
    for module in modules():
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def everywhere(patch: Patch, old: Any, new: Any) -> None:
    """Put ``new`` wherever ``old`` was imported to."""
    for module in modules():
        for name, value in list(vars(module).items()):
            if value is old:
                patch.setattr(module, name, new)


def result_of(function: Callable[..., Any], change: Callable[[Any], Any]) -> Plant:
    """A function whose result is changed."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(function(*args, **kwargs))

    return lambda patch: everywhere(patch, function, changed)


def method(owner: type, name: str, new: Callable[[Any], Callable[..., Any]]) -> Plant:
    """A method that is made from the old one."""
    return lambda patch: patch.setattr(owner, name, new(vars(owner)[name]))


def times(owner: type, name: str, factor: float) -> Plant:
    """A method whose result is multiplied."""
    return method(owner, name, lambda old: lambda self, **options: factor * old(self, **options))


def fields(function: Callable[..., Any], **changes: Callable[[Any], Any]) -> Plant:
    """A function that returns a dataclass, some fields of which are changed."""
    return result_of(
        function, lambda r: dataclasses.replace(r, **{name: new(getattr(r, name)) for name, new in changes.items()})
    )


def number(owner: Any, name: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(owner, name, value)


def shrunk(constant: str, factor: float) -> Plant:
    """Constants that were seen at a few points only, and are passed off as certified."""

    def change(found: Any) -> Any:
        proofs = [_less(proof, factor) if proof.constant == constant else proof for proof in found.proofs]
        return dataclasses.replace(found, proofs=tuple(proofs))

    return result_of(regularity.constants, change)


def _less(proof: Any, factor: float) -> Any:
    return dataclasses.replace(proof, bracket=Bracket(factor * proof.bracket.lower, factor * proof.bracket.upper))


def flatter(name: str, factor: float) -> Plant:
    """A bracket of the smoothness of Phi that is too low."""

    def change(found: Any) -> Any:
        bracket = getattr(found, name)
        return dataclasses.replace(found, **{name: Bracket(factor * bracket.lower, factor * bracket.upper)})

    return result_of(verify.smoothness, change)


def block(changed: str, by: Callable[[Any], Any]) -> Plant:
    """A block of derivatives that the kernels change on its way out."""
    return method(
        ArraySession, "take", lambda old: lambda self, name: by(old(self, name)) if name == changed else old(self, name)
    )


def other_block(name: str, other: str) -> Plant:
    """One block of derivatives in the place of another."""
    return method(Model, "block", lambda old: lambda self, asked: old(self, other if asked == name else asked))


def estimate(change: Callable[[Any, Any], Any]) -> Plant:
    """The estimate of AID, changed; ``change`` is given what it started from."""
    return method(
        AID,
        "_chunk",
        lambda old: lambda self, oracle, x, y, v, lanes: change(old(self, oracle, x, y, v, lanes), (x, y, v)),
    )


def fewer(index: int) -> Plant:
    """CG or descent with a step too few."""
    function = (hypergradient._descended, linear_system.conjugate_gradients)[index]
    place = (4, 3)[index]

    def short(*args: Any) -> Any:
        return function(*args[:place], args[place] - 1, *args[place + 1 :])

    return lambda patch: everywhere(patch, function, short)


def wrong_cosine(patch: Patch) -> None:
    old = autodiff._unary
    patch.setattr(
        autodiff, "_unary",
        lambda graph, op, z, itself: graph.apply("sin", z) if op == "cos" else old(graph, op, z, itself),
    )  # fmt: skip


def plus_implicit_part(patch: Patch) -> None:
    """grad Phi with f_x + g_xy v."""
    old = implicit.gradient

    def gradient(session: Any, xy: Any, **options: Any) -> Any:
        phi, grad = old(session, xy, **options)
        return phi, 2 * session.take("f_x") - grad

    patch.setattr(implicit, "gradient", gradient)


def ascent(patch: Patch) -> None:
    """StocBiO goes up."""
    old = StocBiO.__post_init__

    def post_init(self: StocBiO) -> None:
        old(self)
        object.__setattr__(self, "beta", -self.beta)

    patch.setattr(StocBiO, "__post_init__", post_init)


def turned(patch: Patch) -> None:
    """iNEON's direction, turned by a right angle."""
    old = ineon.INeon.search

    def search(*args: Any) -> Any:
        found = old(*args)
        return found._replace(u=np.stack([-found.u[1], found.u[0]]))

    patch.setattr(ineon.INeon, "search", search)


# ---- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A plant, and the claim that it makes false."""

    name: str
    problem: Callable[[], BilevelProblem]
    label: str
    part: str
    plant: Plant
    variant: Variant = "corrected"
    says: str = "VIOLATED"
    slow: bool = False
