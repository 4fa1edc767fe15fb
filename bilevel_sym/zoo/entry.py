"""Entry: a function that builds an example, with the checks that every parameter goes through.

Example: a problem that carries its own answers.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Literal

import sympy as sp

from bilevel_sym import Constants
from bilevel_sym.arrays.display import to_text
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.graph.exact import rational, rational_vector
from bilevel_sym.problem.problem import BilevelProblem

__all__ = ["Entry", "Example", "KnownPoint", "entry", "exact_constants"]

Kind = Literal["local minimum", "saddle", "local maximum", "degenerate"]


@dataclass(frozen=True, slots=True)
class KnownPoint:
    """A stationary point of Phi and its kind; "degenerate" means a singular Hessian.

    >>> print(KnownPoint((sp.Integer(0), sp.sqrt(2)), "saddle"))
    (0, sqrt(2)): saddle
    """

    x: tuple[sp.Expr, ...]
    kind: Kind

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.x))}): {self.kind}"


@dataclass(frozen=True, kw_only=True, repr=False)
class Example:
    """A problem with its y*, Phi, stationary points and constants; None where they are not known.

    - ``problem``: the problem.
    - ``reference``: where it comes from.
    - ``summary``: one line about it.
    - ``y_star``: y*(x), as expressions.
    - ``phi``: Phi(x), as an expression.
    - ``stationary_points``: those that are known.
    - ``all_stationary``: whether these are all in the problem's domain.
    - ``constants``: those that hold over ``problem.box``; of a stochastic problem, for every data row.
    - ``parameters``: what the problem was made with.
    - ``notes``: what else was built in, such as which labels are wrong.

    >>> from bilevel_sym import zoo
    >>> example = zoo.get("saddle", d=2)
    >>> example
    Example('saddle', d=2, n=2, parameters={'d': 2})
    >>> [str(point) for point in example.stationary_points]
    ['(0, 0): saddle', '(2, 0): local minimum', '(-2, 0): local minimum']
    >>> example.constants.ell
    13
    """

    problem: BilevelProblem
    reference: str = "Made for this package."
    summary: str = ""
    y_star: tuple[sp.Expr, ...] | None = None
    phi: sp.Expr | None = None
    stationary_points: tuple[KnownPoint, ...] | None = None
    all_stationary: bool = False
    constants: Constants | None = None
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False)
    notes: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for frozen in ("parameters", "notes"):
            object.__setattr__(self, frozen, MappingProxyType(dict(getattr(self, frozen))))

    def __reduce__(self) -> tuple[partial[Example], tuple[()]]:
        # a proxy of a mapping cannot travel to another process; what it shows can
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return partial(Example, **values | {name: dict(values[name]) for name in ("parameters", "notes")}), ()

    @property
    def name(self) -> str:
        """The name in the zoo."""
        return self.problem.name or ""

    def __repr__(self) -> str:
        given = f", parameters={dict(self.parameters)}" if self.parameters else ""
        return f"Example({self.name!r}, d={self.problem.d}, n={self.problem.n}{given})"

    def describe(self, *, width: int = 100) -> str:
        """Everything that is known, as plain text; long formulas are cut.

        >>> from bilevel_sym import zoo
        >>> print(zoo.get("minimax_not_nash").describe())
        minimax_not_nash: A local minimax point that is not a local Nash equilibrium.
          kind        minimax, 1 upper and 1 lower variables
          f           -x**2 + 4*x*y - y**2
          g           x**2 - 4*x*y + y**2
          box         x in [-1, 1], y in [-2, 2]
          y*          2*x
          Phi         3*x**2
          stationary  (0): local minimum
                      and no others
          constants   mu = 2, ell = 4, rho = 0, nu = 0, M = 10 (block reading)
          reference   Jin, Netrapalli and Jordan, ICML 2020: local minimax points.
        """
        title = f"{self.name}{_call(self.parameters)}: {self.summary}"
        lines = (f"  {label:<11} {_cut(text, width)}" for label, text in self._facts())
        return "\n".join([textwrap.shorten(title, 2 * width, placeholder=" ..."), *lines])

    def formulas(self) -> dict[str, Any]:
        """f, g, y* and Phi as text, in matrix notation where the problem is; None for what is not known.

        >>> from bilevel_sym import zoo
        >>> zoo.get("diabetes").formulas()["y_star"]
        ['y = solve(H, A.T @ b/m)', 'H = A.T @ A/m + diag(exp(x))']
        """
        problem = self.problem
        if problem.is_array:
            model, told = problem.array_model, problem.derivation.text().splitlines()
            closed = None
            if "y*(x)" in told:  # and not "y*(x) solves"
                indented = takewhile(lambda line: line.startswith("  "), told[told.index("y*(x)") + 1 :])
                closed = [line.strip() for line in indented]
            return {"f": to_text(model.f), "g": to_text(model.g), "y_star": closed, "phi": None}
        return {
            "f": str(problem.f), "g": str(problem.g), "y_star": self.y_star and list(map(str, self.y_star)),
            "phi": None if self.phi is None else str(self.phi),
        }  # fmt: skip

    def _facts(self) -> Iterator[tuple[str, str]]:
        problem, texts = self.problem, self.formulas()
        yield "kind", f"{problem.kind}, {problem.d} upper and {problem.n} lower variables"
        yield "f", texts["f"]
        yield "g", texts["g"]
        if problem.box is not None:
            yield "box", ", ".join(f"{s} in [{lo}, {hi}]" for s, (lo, hi) in problem.box.items())
        yield "y*", ", ".join(texts["y_star"] or ["no closed form"])
        yield "Phi", texts["phi"] or "no closed form"
        yield from zip(["stationary", *[""] * len(self._points())], self._points(), strict=False)
        if self.constants is not None:
            yield "constants", _constants_text(self.constants)
        yield from ((key.replace("_", " "), str(value)) for key, value in self.notes.items())
        yield "reference", self.reference

    def _points(self) -> list[str]:
        if self.stationary_points is None:
            return ["not known in closed form"]
        known = [str(point) for point in self.stationary_points]
        if not self.all_stationary:
            return [*known, "and others"]
        return [*known, "and no others"] if known else ["none"]


def exact_constants(**values: sp.Expr | int) -> Constants:
    """Constants in the block reading as SymPy numbers, so that no quotient of them is rounded.

    >>> exact_constants(mu=3, ell=10, rho=0, nu=0, M=1).kappa
    10/3
    """
    exact = {name: sp.Integer(v) if isinstance(v, int) else v for name, v in values.items()}
    return Constants(**exact, reading="block")


def _call(parameters: Mapping[str, object]) -> str:
    return f"({', '.join(f'{key}={value}' for key, value in parameters.items())})" if parameters else ""


def _constants_text(constants: Constants) -> str:
    names = ["mu", "ell", "rho", "nu", "M"] + ["sigma"] * (constants.sigma is not None)
    values = ", ".join(f"{name} = {getattr(constants, name)}" for name in names)
    return f"{values} ({constants.reading} reading)"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 4]} ..."


MOST_VARIABLES = 60  # of x, and of y: formulas of more take long to write down


@dataclass(frozen=True)
class Entry:
    """A builder under its name. The type of a parameter's default says what the parameter may be.

    int: an integer. Rational: any finite real number, taken exactly. Text: a word, a number, or
    several.

    >>> from bilevel_sym.zoo.tube import tube
    >>> tube.name, dict(tube.defaults)
    ('tube', {'d': 5, 'L': 1, 'gamma': 1})
    >>> tube(d=2, L="1/2")
    Example('tube', d=2, n=1, parameters={'d': 2, 'L': 1/2, 'gamma': 1})
    """

    build: Callable[..., Example]

    def __post_init__(self) -> None:
        # what functools.wraps does, for a frozen object: docstring and doctest are the builder's
        for name in functools.WRAPPER_ASSIGNMENTS:
            self.__dict__[name] = getattr(self.build, name)
        self.__dict__["__wrapped__"] = self.build

    @property
    def name(self) -> str:
        """The name in the zoo."""
        return self.build.__name__

    @property
    def summary(self) -> str:
        """The first line of the builder's docstring."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]

    @property
    def defaults(self) -> Mapping[str, object]:
        """Each parameter and the value that it has unless another one is given."""
        declared = inspect.signature(self.build).parameters.values()
        return MappingProxyType({item.name: item.default for item in declared})

    def __call__(self, **given: object) -> Example:
        """The example for these parameters."""
        defaults = self.defaults
        for key in given:
            if key not in defaults:
                raise InvalidArgument(f"{self.name} has no parameter {key!r:.60}", hint=self._accepted())
        values = {key: self._read(key, given.get(key, value)) for key, value in defaults.items()}
        example = self.build(**values)
        return replace(example, summary=example.summary or self.summary, parameters=values)

    def _read(self, key: str, value: object) -> object:
        default = self.defaults[key]
        try:
            if isinstance(default, int):
                return _integer(value)
            return rational(value) if isinstance(default, sp.Rational) else _word_or_numbers(value)
        except (InvalidArgument, TypeError):
            raise InvalidArgument(
                f"{self.name} wants {_wanted(default)} for {key}, but was given {value!r:.60}",
                hint=self._accepted(),
            ) from None

    def _accepted(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self.defaults.items())
        return f"it takes {shown}" if shown else "it takes no parameters"


def entry(build: Callable[..., Example]) -> Entry:
    """Make a builder an entry of the zoo: ``zoo/__init__.py`` collects them by their type.

    >>> @entry
    ... def nothing(*, d: int = 1) -> Example:
    ...     "Nothing at all."
    >>> nothing.name, nothing.summary
    ('nothing', 'Nothing at all.')
    """
    return Entry(build)


def require_range(name: str, value: int, low: int, high: int) -> None:
    """Refuse an integer parameter outside its range; beyond ``high`` the formulas become too large.

    >>> require_range("d", 3, 1, 100)
    """
    if not low <= value <= high:
        raise InvalidArgument(f"{name} must be between {low} and {high}, but is {value!s:.40}")


def require_positive(**values: sp.Rational) -> None:
    """Refuse numbers that are not positive.

    >>> require_positive(L=sp.Integer(1), gamma=sp.Rational(1, 2))
    """
    for name, value in values.items():
        if value <= 0:
            raise InvalidArgument(f"{name} must be positive, but is {value!s:.40}")


def _integer(value: object) -> int:
    number = rational(value)
    if not number.is_Integer:
        raise InvalidArgument(f"{number} is not an integer")
    return int(number)


def _word_or_numbers(value: object) -> object:
    """A word stays; ``10`` is a number; ``1:2:5``, or a sequence, is several."""
    if not isinstance(value, str):
        return rational_vector(value) if isinstance(value, (tuple, list)) else rational(value)
    if value.isidentifier():
        return value
    return rational_vector(value.split(":")) if ":" in value else rational(value)


def _wanted(default: object) -> str:
    if isinstance(default, int):
        return "an integer"
    return "a number" if isinstance(default, sp.Rational) else "a word or numbers"
