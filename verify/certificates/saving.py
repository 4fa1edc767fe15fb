"""What ``save`` writes: brackets rounded outward, with the hints that make their proof short."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import fmpq

from bilevel_sym import BilevelProblem, Box, StochasticProblem
from bilevel_sym.certify.saved_certificate import EXACT, problem_text, rounded_down, rounded_up, write_certificate
from bilevel_sym.errors import BilevelError, CertificateFailure, InvalidArgument
from verify.certificates import recheck
from verify.certificates.provable import named, provable_brackets, provable_points, ready
from verify.enclosures.block_norm import ExactBox
from verify.enclosures.cover import LEAF, Cover
from verify.enclosures.tensor_norm import worst_directions

if TYPE_CHECKING:
    from verify.points.point import StationaryPoint
    from verify.points.stationary import StationaryPoints
    from verify.regularity.certified import CertifiedConstants, Proof
    from verify.regularity.phi_smoothness import Smoothness

__all__ = ["save_constants", "save_smoothness", "save_stationary"]

Path = str | os.PathLike[str]


def save_constants(constants: CertifiedConstants, path: Path, progress: bool = False) -> None:
    """Brackets of the constants; the lower end of each with the point and the directions that reach it.

    >>> import json, pathlib, tempfile, verify
    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.json"
    >>> save_constants(verify.constants(problem), path)
    >>> claim = json.loads(path.read_text())["claims"]["ell"]
    >>> claim["lower"], claim["upper"], claim["at"]
    ('1.9999999', '2.0000001', 'g_yy 0')
    """
    claims, found, box = {}, {}, _box_of(constants)
    for name in ("mu", "ell", "rho", "nu", "M", "g_y"):
        proofs = [proof for proof in constants.proofs if proof.constant == name]
        best = max(proofs, key=lambda proof: proof.bracket.lower)
        upper = max(proof.bracket.upper for proof in proofs)
        ends = {"lower": rounded_down(max(best.bracket.lower, 0.0)), "upper": rounded_up(upper)}
        if name == "mu":
            ends = {"lower": rounded_down(-upper), "upper": rounded_up(-best.bracket.lower)}
        found[name] = -upper if name == "mu" else upper
        covers = {_row(constants.problem, proof): _cuts(proof.cover) for proof in proofs if proof.cover.size > 1}
        claims[name] = {**ends, **_witness(constants, best), "covers": covers}
    says = {"box": _box(box), "near": {}, "claims": claims}
    says = provable_brackets(constants.reading, constants.problem, says, found, progress)
    write_certificate(path, constants.reading, constants.problem, says)


def save_smoothness(found: Smoothness, path: Path, progress: bool = False) -> None:
    """Brackets of sup |grad Phi|, sup |Hess Phi| and the Lipschitz constant of Hess Phi.

    >>> import json, pathlib, tempfile, verify
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.json"
    >>> save_smoothness(verify.smoothness(problem, Box({"x": (-1, 1)})), path)
    >>> json.loads(path.read_text())["claims"]["L_phi"]["lower"]
    '1.9999999'
    """
    kernels = found.problem.mean.kernels
    tensors = {"grad_norm": kernels.grad_phi, "L_phi": kernels.hess_phi, "rho_phi": kernels.third_phi}
    claims: dict[str, Any] = {}
    uppers = {name: getattr(found, name).upper for name in tensors}
    uppers["rho_phi"] = _provable(uppers["rho_phi"], found)
    for name, tensor_at in tensors.items():
        bracket, point = getattr(found, name), found.points.get(name)
        block = f"p_{'x' * (1 + len(claims))} 0"
        ends = {"lower": "0", "upper": rounded_up(uppers[name])}
        claim: dict[str, Any] = {**ends, "at": block, "covers": {block: _cuts(found.covers[name])}}
        if point is not None and bracket.lower > 0:
            at = np.array([point[symbol.name] for symbol in found.problem.x])
            _, directions = worst_directions(np.asarray(tensor_at(at)))
            claim |= {
                "lower": rounded_down(bracket.lower),
                "point": _exact(point),
                "directions": [list(map(repr, vector.tolist())) for vector in directions],
            }
        claims[name] = claim
    says = {"box": _box(found.box), "near": _near(found.problem, found.box), "claims": claims}
    says = provable_brackets("smoothness", found.problem, says, uppers, progress)
    write_certificate(path, "smoothness", found.problem, says)


def save_stationary(found: StationaryPoints, path: Path, progress: bool = False) -> None:
    """The stationary points with the boxes in which each is the only one, and the boxes that are not decided.

    >>> import json, pathlib, tempfile
    >>> from verify import study_of
    >>> problem = BilevelProblem("x*y - y", "y**2/2 - x*y", "x", "y", box={"x": (-2, 2), "y": (-3, 3)})
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.json"
    >>> save_stationary(study_of(problem).stationary, path)
    >>> [point["kind"] for point in json.loads(path.read_text())["points"]]
    ['local minimum']
    """
    if found.problem is None or found.box is None:
        raise CertificateFailure("these stationary points do not say of which problem they are")
    problem, points = found.problem, []
    open_boxes = {str(box) for box in found.undecided}
    near = _near(problem, found.box)
    finder = _Finder(problem, found.box, near)
    for point in found.points:
        if str(point.box) in open_boxes:  # an exact point of a box that stays undecided
            continue
        vectors = np.linalg.eigh(problem.mean.kernels.hess_phi(np.array(point.x)))[1]
        alone, at = finder.boxes(point)
        directions = [list(map(repr, vectors[:, k].tolist())) for k in (0, -1)]
        points.append({"near": at, "alone": alone, "kind": point.kind, "directions": directions})
    undecided = [_box(box) for box in found.undecided]
    says = {"box": _box(found.box), "near": near, "points": points, "undecided": undecided}
    says = provable_points(problem, says, progress)
    write_certificate(path, "stationary", problem, says)


class _Finder:
    """Boxes around stationary points in which the checker itself can prove that there is exactly one."""

    def __init__(self, problem: BilevelProblem, box: Box, near: Mapping[str, str]) -> None:
        self.names = box.names or ()
        self.problem = recheck.Problem(problem_text(problem), near)

    def boxes(self, point: StationaryPoint) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """The largest of several boxes, and one as narrow as what is known of the point."""
        radius = 2 * Fraction(point.radius) + Fraction(1, 10**16) * (1 + max(map(abs, map(Fraction, point.x))))
        ends = [tuple(Fraction(int(end.p), int(end.q)) for end in pair) for pair in point.box]
        widths = [min(Fraction(v) - low, high - Fraction(v)) for v, (low, high) in zip(point.x, ends, strict=True)]
        at = [(Fraction(value) - radius, Fraction(value) + radius) for value in point.x]
        for halving in range(40):
            reach = [max(width / 2**halving, radius) for width in widths]
            alone = [(Fraction(value) - r, Fraction(value) + r) for value, r in zip(point.x, reach, strict=True)]
            if self._holds_one(alone):
                break
        return named(self.names, alone), named(self.names, at)

    def _holds_one(self, box: Sequence[tuple[Fraction, Fraction]]) -> bool:
        exact = tuple((fmpq(a.numerator, a.denominator), fmpq(b.numerator, b.denominator)) for a, b in box)
        with ready():
            try:
                image = self.problem.newton(exact)[0]
            except ArithmeticError:
                return False
            return image is not None and all(a < i < b for i, (a, b) in zip(image.entries(), exact, strict=True))


def _box(box: Box) -> dict[str, list[str]]:
    return {name: [str(low), str(high)] for name, (low, high) in box.items()}


def _provable(upper: float, found: Smoothness) -> float:
    """A bound of a third derivative, enlarged where it is zero but for rounding, which is beyond the checker's balls.

    What is added changes the Hessian over the box by less than its own bound is rounded.
    """
    width = max(float(high - low) for low, high in found.box)
    least = float(EXACT) * found.L_phi.upper / width if width > 0 else 0.0
    return least if 0 < upper < least < math.inf else upper


def _cuts(cover: Cover) -> str:
    return " ".join("." if cut == LEAF else str(cut) for cut in cover.cuts)


def _exact(point: Mapping[str, float]) -> dict[str, str]:
    return {name: repr(float(value)) for name, value in point.items()}


def _near(problem: BilevelProblem, box: Box) -> dict[str, str]:
    """y* in the middle of the box, or nothing."""
    try:
        y = problem.mean.kernels.one_sided.y_star([float((low + high) / 2) for low, high in list(box)[: problem.d]])
    except BilevelError:
        return {}
    return {symbol.name: repr(value) for symbol, value in zip(problem.y, y.tolist(), strict=True)}


def _box_of(constants: CertifiedConstants) -> Box:
    if constants.box is None:  # of array problems alone, which ``save`` refuses
        raise InvalidArgument("constants without a box cannot be saved", hint="constants(problem, box)")
    return constants.box


def _witness(constants: CertifiedConstants, best: Proof) -> dict[str, Any]:
    """Where, and along which directions, the lower end is reached."""
    from verify.regularity.certified import instances, objective_of

    if best.point is None or (best.constant != "mu" and best.bracket.lower <= 0):
        return {"at": ""}
    region = ExactBox(box := _box_of(constants))
    tensor = objective_of(instances(constants.problem)[best.row], best.constant, best.block, region).values(
        best.point[None]
    )[0]
    low, high = region.inside
    ends = zip(box.items(), best.point.tolist(), low > high, strict=True)
    point = {name: str(least) if crossed else repr(value) for (name, (least, _)), value, crossed in ends}
    vectors = [np.linalg.eigh(tensor)[1][:, 0]] * 2 if best.constant == "mu" else worst_directions(tensor)[1]
    directions = [list(map(repr, vector.tolist())) for vector in vectors]
    return {"at": _row(constants.problem, best), "point": point, "directions": directions}


def _row(problem: BilevelProblem, proof: Proof) -> str:
    """The block and its row: of f or g alone, as the data come, each row once."""
    return f"{proof.block} {_place(problem, proof)}"


def _place(problem: BilevelProblem, proof: Proof) -> int:
    from verify.regularity.certified import instances

    if not isinstance(problem, StochasticProblem):
        return 0
    instance = instances(problem)[proof.row]
    upper = proof.block.startswith("f")
    symbols, data, whole = (
        (problem.xi, problem.xi_data, problem.F) if upper else (problem.zeta, problem.zeta_data, problem.G)
    )
    rows: Sequence[Any] = list(dict.fromkeys(data)) or [()]
    wanted = instance.f if upper else instance.g
    return next(k for k, row in enumerate(rows) if whole.subs(dict(zip(symbols, row, strict=True))) == wanted)
