"""Records for programs: what ``--format json`` prints. The schemas are stable; ``.github/docs/schemas`` has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bilevel_sym.errors import InvalidExtension
from bilevel_sym.system.progress import tell_once

if TYPE_CHECKING:
    from bilevel_sym.arithmetic.balls import Ball
    from bilevel_sym.certify.certificate import PointCertificate
    from bilevel_sym.symbolic.derivation import Derivation
    from bilevel_sym.zoo import Example
    from verify.erratum import Erratum

Record = dict[str, Any]


# ---- derive -----------------------------------------------------------------------------------------------


def derivation_record(derivation: Derivation) -> Record:
    """Expressions as text, matrices as lists of rows; absent formulas are null.

    >>> from bilevel_sym import derive, zoo
    >>> derivation_record(derive(zoo.get("minimax_not_nash").problem))["hess_phi"]
    [['6']]
    """
    record: Record = {
        "schema": "bilevel-sym/derivation/1",
        "name": derivation.name,
        "x": [s.name for s in derivation.x],
        "y": [s.name for s in derivation.y],
        "closed_form": derivation.is_closed_form,
        "method": derivation.method,
        "kinks": [kink.record() for kink in derivation.kinks],
        "y_star": None if derivation.y_star is None else [str(e) for e in derivation.y_star],
        "auxiliaries": {str(name): str(value) for name, value in derivation.auxiliaries.items()},
    }
    return record | _written_out(derivation)


def _written_out(derivation: Derivation) -> Record:
    """Null for what is too large to be written; the auxiliaries hold for every size."""
    from bilevel_sym.errors import NoClosedForm
    from bilevel_sym.symbolic.display import written_out

    texts: Record = dict.fromkeys(("phi", "grad_phi", "hess_phi", "terms"))
    try:
        for name in ("phi", "grad_phi", "hess_phi"):
            texts[name] = _texts(written_out(derivation, name))
        texts["terms"] = _texts(derivation.terms)
    except NoClosedForm:
        pass
    return texts


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _texts(part) for key, part in value.items()}
    return [[str(entry) for entry in row] for row in value.tolist()] if hasattr(value, "tolist") else str(value)


# ---- certify ----------------------------------------------------------------------------------------------


def certificate_record(certificate: PointCertificate) -> Record:
    """Numbers as decimal text, each with a bound on its error: the truth lies within it, proved.

    >>> from bilevel_sym import evaluate, zoo
    >>> certificate_record(evaluate(zoo.get("minimax_not_nash").problem, ["1/3"], digits=5))["at"]
    {'x': '1/3'}
    """
    problem = certificate.problem

    def enclosed(ball: Ball) -> Record:
        # Arb's own text is an enclosure: "[0.333 +/- 4e-4]", without brackets where it is exact
        value, _, error = ball.value.str(certificate.digits).strip("[]").partition("+/-")
        return {"value": value.strip() or "0", "error": error.strip() or "0"}

    return {
        "schema": "bilevel-sym/certificate/1",
        "name": problem.name,
        "at": {s.name: str(value) for s, value in zip(problem.x_entries, certificate.x, strict=True)},
        "digits": certificate.digits,
        "proved": certificate.proved,
        "convexity": certificate.convexity,
        "why": certificate.why,
        "y_star": {s.name: enclosed(ball) for s, ball in zip(problem.y_entries, certificate.y_star, strict=True)},
        "phi": enclosed(certificate.phi),
        "grad_phi": [enclosed(ball) for ball in certificate.grad_phi],
        "hess_phi": [[enclosed(ball) for ball in row] for row in certificate.hess_rows],
    }


# ---- zoo --------------------------------------------------------------------------------------------------


def zoo_record() -> Record:
    """Every problem by name, with what it takes; one of an installed package that fails is told of, and left out.

    >>> next(problem for problem in zoo_record()["problems"] if problem["name"] == "tube")["parameters"]
    {'d': 5, 'L': '1', 'gamma': '1'}
    """
    from bilevel_sym import zoo

    problems: list[Record] = []
    for name in (*zoo.data_names(), *zoo.names()):
        try:
            parameters = _plain(zoo.parameters(name))
        except InvalidExtension as error:
            tell_once(f"bilevel-sym: {error.message}")
        else:
            problems.append({"name": name, "summary": zoo.summary(name), "parameters": parameters})
    return {"schema": "bilevel-sym/zoo/1", "problems": problems}


def example_record(example: Example) -> Record:
    """A problem with its answers: expressions as text, null where nothing is known in closed form.

    >>> from bilevel_sym import zoo
    >>> example_record(zoo.get("minimax_not_nash"))["stationary_points"]
    [{'x': ['0'], 'kind': 'local minimum'}]
    """
    problem, points, constants = example.problem, example.stationary_points, example.constants
    names = ("mu", "ell", "rho", "nu", "M", "sigma")
    return {
        "schema": "bilevel-sym/example/1",
        "name": example.name,
        "summary": example.summary,
        "parameters": _plain(example.parameters),
        "kind": problem.kind,
        "x": [s.name for s in problem.x_entries],
        "y": [s.name for s in problem.y_entries],
        **example.formulas(),
        "box": None if problem.box is None else {s: [str(low), str(high)] for s, (low, high) in problem.box.items()},
        "stationary_points": None
        if points is None
        else [{"x": [str(c) for c in point.x], "kind": point.kind} for point in points],
        "all_stationary": example.all_stationary,
        "constants": None
        if constants is None
        else {name: str(v) for name in names if (v := getattr(constants, name)) is not None},
        "notes": {key: str(value) for key, value in example.notes.items()},
        "reference": example.reference,
    }


def _plain(parameters: Any) -> Record:
    """Whole numbers as they are, everything else as text that ``zoo:name,key=value`` takes."""

    def plain(value: object) -> object:
        if isinstance(value, tuple):
            return ":".join(map(str, value))
        return value if isinstance(value, int) else str(value)

    return {key: plain(value) for key, value in parameters.items()}


# ---- errata -----------------------------------------------------------------------------------------------


def erratum_record(entry: Erratum) -> Record:
    """An erratum with its verdict, computed anew.

    >>> from verify.papers.huang_saddle.errata import errata
    >>> erratum_record(errata()[0])["verdict"]
    'HOLDS'
    """
    from bilevel_sym.system.verifier import verifier

    cite = verifier("theory").cite
    result = entry.check()
    names = ("name", "printed", "corrected", "witness", "why", "severity", "modelled", "evidence")
    return {
        "labels": list(entry.labels),
        "citations": [cite(label) for label in entry.labels],
        **{name: getattr(entry, name) for name in names},
        "verdict": str(result.verdict),
        "message": result.message,
    }
