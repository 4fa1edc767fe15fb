"""Every rule of every record of an operation, held against another route; ``test_refutation_operations`` breaks each.

What an operation is, is said here by SymPy's class of it, or, where there is none, by a line of mpmath.
"""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import arb, fmpq

from bilevel_sym import BilevelProblem, compile_kernels, derive, evaluate
from bilevel_sym.arithmetic import intervals
from bilevel_sym.arithmetic.arrays import ArrayProgram
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.compiled import elementwise
from bilevel_sym.arithmetic.compiled.instructions import Encoded
from bilevel_sym.arithmetic.elementary import ARB, _proved, library
from bilevel_sym.arithmetic.scalars import DIGITS, ScalarProgram, digits_rule
from bilevel_sym.graph.expressions import SUPPORTED_FUNCTIONS
from bilevel_sym.graph.nodes import Graph, LinearForm
from bilevel_sym.graph.operations import FUNCTIONS, IN_TEXT, OPERATIONS
from bilevel_sym.graph.operations.record import Operation, Shape, over_balls
from bilevel_sym.graph.program import build
from bilevel_sym.problem.parsing import parse_expression
from bilevel_sym.problem.parsing.grammar import FUNCTIONS as GRAMMAR
from bilevel_sym.problem.parsing.guarded import _estimate
from bilevel_sym.problem.parsing.names import RESERVED, suggestion
from bilevel_sym.problem.text import to_text
from bilevel_sym.symbolic.source_parts.printer import SOURCES
from verify.papers.huang_saddle.measures.jets import derivatives

x, y, z = sp.symbols("x y z")
BITS = 240
POINTS = (Fraction(-9, 4), Fraction(-1), Fraction(-3, 8), Fraction(1, 4), Fraction(1), Fraction(5, 4), Fraction(3))
PARAMETERS: dict[str, list[tuple[int, ...]]] = {
    "ipow": [(2,), (3,), (-1,), (-2,), (7,)],
    "rpow": [(1, 2), (-3, 2), (2, 3), (7, 5)],
}
# what is no analytic function of one argument: what switches, and what every arithmetic has code of its own for
SWITCHES = {"abs", "sign", "min", "max", "lt", "le", "select"}
OWN = {"mul", "ipow", "rpow", "pi"}
# nanoseconds that numba took longer than NumPy, as they were measured; none for the others
MEASURED_EXCESS = {"log": 3, "tan": 9, "atan": 7, "sinh": 10, "cosh": 5, "asinh": 16, "rpow": 6}
TIGHT = 1.2  # how far above the largest value that is seen a bound of a derivative may be
# operations without a class of SymPy that says what they are
WRITTEN_OUT: dict[str, Callable[..., Any]] = {
    "bell": lambda a: mpmath.exp(a) / (1 + mpmath.exp(a)) ** 2,
    "softplus": lambda a: mpmath.log(1 + mpmath.exp(a)),
    "sigmoid": lambda a: 1 / (1 + mpmath.exp(-a)),
    "abs": lambda a: -a if a < 0 else a,
    "sign": lambda a: mpmath.mpf((a > 0) - (a < 0)),
    "min": lambda a, b: (a + b - abs(a - b)) / 2,
    "max": lambda a, b: (a + b + abs(a - b)) / 2,
    "lt": lambda a: mpmath.mpf(a < 0),
    "le": lambda a: mpmath.mpf(a <= 0),
    "select": lambda c, a, b: b if c == 0 else a,
    "mul": lambda a, b: mpmath.exp(mpmath.log(a) + mpmath.log(b)).real,
    "ipow": lambda a, k: mpmath.power(a, k),
    "rpow": lambda a, p, q: mpmath.exp(mpmath.log(a) * p / q),
    "pi": lambda: 4 * mpmath.atan(1),
}


@cache
def sympys(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = sp.lambdify(x, getattr(sp, name)(x), "mpmath")
    return function


def truth(record: Operation, *arguments: Any) -> Any:
    """The value at numbers, and parameters, in mpmath."""
    function = WRITTEN_OUT[record.name] if record.name in WRITTEN_OUT else sympys(record.name)
    return function(*arguments)


def number(value: Fraction) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator


def cases(record: Operation) -> list[tuple[tuple[Fraction, ...], tuple[int, ...]]]:
    """Arguments in the domain, none of them at a switch, and parameters."""
    if record.name == "select":  # a condition is 0 or 1
        return [((Fraction(c), Fraction(2), Fraction(-3, 8)), ()) for c in (0, 1)]
    points = [point for point in POINTS if point > record.domain]
    several = list(itertools.product(points, repeat=record.arity))[:: 1 + 12 * (record.arity - 1)]
    several = [arguments for arguments in several if len(set(arguments)) == len(arguments)]
    return list(itertools.product(several, PARAMETERS.get(record.name, [()])))


def at_switch(record: Operation) -> list[tuple[Fraction, ...]]:
    """Arguments between the two sides: where a rule with < for <= shows."""
    zero, others = Fraction(0), (Fraction(-3, 8), Fraction(0), Fraction(2))
    match record.name:
        case "abs" | "sign" | "lt" | "le":
            return [(zero,)]
        case "min" | "max":
            return [(a, a) for a in others]
        case "select":
            return [(zero, a, b) for a, b in itertools.product(others, others)]
    return []


def close(value: Any, true: Any, digits: int) -> bool:
    return bool(mpmath.isfinite(value) and abs(value - true) <= mpmath.mpf(10) ** -digits * max(1, abs(true)))


def ulps(value: Any, true: Any) -> float:
    return float(abs(mpmath.mpf(float(value)) - true) / mpmath.mpf(math.ulp(float(true))))


# ---- what it is called ------------------------------------------------------------------------------------


def check_name(record: Operation) -> None:
    assert OPERATIONS[record.name].shape == record.shape
    if isinstance(record.sympy, type) and not issubclass(record.sympy, sp.Mul):
        assert record.sympy.__name__.lower() == record.name


def check_arity(record: Operation) -> None:
    parameters = PARAMETERS.get(record.name, [()])[0]
    for rule in (record.rule("mpmath"), record.rule("ball")):
        takes = inspect.signature(rule).parameters if inspect.isfunction(rule) and rule.__name__ == "<lambda>" else None
        assert takes is None or len(takes) == record.arity + len(parameters)
    assert np.ndim(record.rule("numpy")(*np.ones((record.arity, 3)), *parameters)) == 1 if record.arity else True


def check_sympy(record: Operation) -> None:
    """In SymPy, back from the graph, in LaTeX, and differentiated."""
    symbols = (x, y, z)[: record.arity]
    with mpmath.workdps(50):
        for arguments, parameter in cases(record):
            values = {s: sp.Rational(a.numerator, a.denominator) for s, a in zip(symbols, arguments, strict=True)}
            value = record.sympy(*symbols, *parameter).subs(values).evalf(50)
            assert close(mpmath.mpf(value), truth(record, *map(number, arguments), *parameter), 45)
    if record.in_text:  # what people see
        assert sp.latex(record.sympy(*symbols)) in derive(shown(record.sympy(*symbols))).latex()


@cache
def shown(expression: sp.Expr) -> BilevelProblem:
    return BilevelProblem(expression, z**2 / 2, [x, y], [z])


def check_in_text(record: Operation) -> None:
    assert record.in_text == (record.name in GRAMMAR) == (record.sympy in SUPPORTED_FUNCTIONS)
    if record.in_text:
        symbols = (x, y, z)[: record.arity]
        text = f"{record.name}({', '.join(map(str, symbols))})"
        read = parse_expression(text, dict(zip("xyz", symbols, strict=False)))
        assert read == record.sympy(*symbols)
        assert to_text(read) == text
        assert record.name in RESERVED
    if record.in_text and record.arity == 1:  # SymPy takes a sign out, or does not; the grammar does the same
        for argument in (-x, 1 - x, -2 * x - y, x * y):
            assert parse_expression(f"{record.name}({argument})", {"x": x, "y": y}) == record.sympy(argument)
        flipped = {"odd": -record.sympy(x), "even": record.sympy(x), None: None}[record.parity]
        assert flipped is None or record.sympy(-x) == flipped or record.name == "abs"


def other_names(record: Operation) -> set[str]:
    """What ``math``, NumPy, SciPy and SymPy call the same function of one argument, by its values."""
    points = [point for point in POINTS if point > record.domain]
    with mpmath.workdps(20):
        true = [float(truth(record, number(point))) for point in points]
    return {name for name, function in known_functions() if values(function, points) == pytest.approx(true, rel=1e-9)}


@cache
def known_functions() -> list[tuple[str, Callable[..., Any]]]:
    from scipy import special

    kinds: list[tuple[Any, Callable[[Any], bool]]] = [
        (math, inspect.isbuiltin),
        (np, lambda f: isinstance(f, np.ufunc) and f.nin == f.nout == 1),
        (special, lambda f: isinstance(f, np.ufunc) and f.nin == f.nout == 1),
        (sp, lambda f: inspect.isclass(f) and issubclass(f, sp.Function)),
    ]
    return [(name, value) for library, kind in kinds for name, value in vars(library).items() if kind(value)]


def values(function: Callable[..., Any], points: list[Fraction]) -> list[float]:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [float(function(float(point))) for point in points]
    except Exception:  # noqa: BLE001  of more arguments, or of none, or not real
        return []


def check_habits(record: Operation) -> None:
    """Other names of the same function, all that the libraries use; none that is one of another function."""
    if record.in_text and record.is_function:
        same = other_names(record) - {"exp_polar"}  # SymPy's own, for the surface of a logarithm
        assert same <= {record.name, *record.habits}
        of_others = {name for name, _ in known_functions()} - same
        assert of_others.isdisjoint(record.habits)
    for habit in record.habits:
        assert habit not in RESERVED
        assert suggestion(habit, ()) == f"did you mean {record.name}?"


# ---- where and how it runs ----------------------------------------------------------------------------------


def check_domain(record: Operation) -> None:
    if record.name == "ipow":
        assert record.domain == -math.inf
        return
    parameter = PARAMETERS.get(record.name, [()])[0]
    for point in (-4.0, -1.0, -0.3, 0.2, 2.0):
        arguments = [point] * record.arity
        inside = point > record.domain
        with np.errstate(all="ignore"), precision(BITS):
            assert mpmath.isfinite(digits_rule(record)(*map(mpmath.mpf, arguments), *parameter)) == inside
            assert (
                np.isfinite(record.numpy(*map(np.float64, arguments), *parameter)) == inside if record.numpy else True
            )
            assert over_balls(record)(*map(arb, arguments), *parameter).is_finite() == inside
    if record.is_function:
        straddling = over_balls(record)(arb(0.5, 1))
        assert straddling.is_finite() == (record.domain < -0.5 or (record.is_partial and record.domain == -math.inf))


def check_shape(record: Operation) -> None:
    """Intervals of floats and of Arb, and wide balls, hold the values inside, and little more than their range."""
    if record.name in SWITCHES | OWN:
        assert record.shape == Shape("switch" if record.name in SWITCHES else "own")
        return
    assert record.is_function
    least = max(record.domain, -6.0)
    starts = np.arange(least + 0.125, 5.0, 0.375)
    numpy = library({record.name: record.rule("numpy"), "exp": np.exp, "log1p": np.log1p})
    proved = library({record.name: _proved(record), "exp": ARB["exp"], "log1p": ARB["log1p"]})
    for width in (0.0, 1e-3, 0.5, 3.0):
        boxes = starts, starts + width
        inside = np.linspace(*boxes, 33)
        values = record.rule("numpy")(inside)
        for table in (numpy, proved):
            lo, hi = intervals.over_boxes(record, table)(boxes)
            assert np.all((lo <= values) & (values <= hi))
            bounded = np.isfinite(hi - lo)
            assert bounded.all() or record.is_partial
            steep = np.abs(np.diff(values, axis=0)).max(axis=0)
            assert np.all(
                ((hi - lo) <= np.ptp(values, axis=0) + 2 * steep + 1e-13 * np.abs(values).max(axis=0))[bounded]
            )
        for low, high, value in zip(*boxes, values.T, strict=True):
            ball = over_balls(record)(arb(low).union(arb(high)) if width else arb(low))
            assert not ball.is_finite() or all(ball.overlaps(arb(v, 1e-13 * (1 + abs(v)))) for v in value)
            spread = 3 * np.ptp(value) + 1e-3 if record.shape.kind in ("monotone", "rising", "falling") else math.inf
            assert ball.rad() <= spread + (1e-9 if not width else 0) or record.is_periodic
    if record.shape.kind in ("monotone", "rising", "falling"):
        with np.errstate(all="ignore"):
            ends = record.rule("numpy")(np.array([-np.inf, np.inf, 0.0] if record.domain < 0 else [0.0, np.inf]))
        low, high = float(ends.min()), float(ends.max())
        assert math.nextafter(low, -math.inf) <= record.shape.least <= low
        assert high <= record.shape.most <= math.nextafter(high, math.inf)


def check_largest(record: Operation) -> None:
    """Up to there a constant is a float that says something; beyond, it is refused."""
    if not (record.is_function and record.in_text):
        assert record.largest == math.inf
        return
    assert record.largest >= 600
    estimate = _estimate(record)
    for far in {min(record.largest, 1e300), -min(record.largest, 1e300)}:
        if far > record.domain:
            with np.errstate(all="raise", under="ignore"):
                value = estimate(far)
            assert math.isfinite(value)
            assert value != 0
    assert math.ulp(record.largest) < 1e-6 or not record.is_periodic
    if record.is_periodic:
        assert math.ulp(record.largest) > 1e-8
    elif record.largest < math.inf:  # nothing that could be computed is refused
        beyond = [truth(record, mpmath.mpf(sign * 1.05 * record.largest)) for sign in (-1, 1)]
        assert any(abs(value) > 1e300 or abs(value) < 1e-300 for value in beyond)


# ---- its values ---------------------------------------------------------------------------------------------


def check_numpy(record: Operation) -> None:
    if record.name == "pi":
        assert record.numpy is None  # a constant is rounded once, from its ball
        return
    limit = 8 if record.is_function else 2 + 8 * bool(PARAMETERS.get(record.name))
    with mpmath.workdps(50), np.errstate(all="ignore"):
        for arguments, parameter in cases(record):
            value = record.rule("numpy")(*(np.full(3, float(a)) for a in arguments), *parameter)
            assert value.shape == (3,)
            true = truth(record, *map(number, arguments), *parameter)
            assert ulps(value[1], true) <= limit, (arguments, parameter)
        for arguments in at_switch(record):
            value = record.rule("numpy")(*(np.full(3, float(a)) for a in arguments))
            assert value[1] == float(truth(record, *map(number, arguments))), arguments
        nans = [np.full(2, np.nan)] * record.arity
        assert np.isnan(record.rule("numpy")(*nans, *PARAMETERS.get(record.name, [()])[0])).all()


def check_composed(record: Operation) -> None:
    rule = record.numpy
    takes = inspect.isfunction(rule) and "library" in inspect.signature(rule).parameters
    assert record.composed == takes


def check_compiled(record: Operation) -> None:
    """A rule for numba, or code of its own; ``test_compiled_functions`` runs all of them."""
    assert record.name in elementwise.CODES or record.name == "pi"
    own = record.name in elementwise.VECTORS or not record.is_function
    assert (record.compiled is None) == own
    if record.compiled is not None:
        with mpmath.workdps(50):
            for (argument,), _ in cases(record):
                assert ulps(record.compiled(float(argument)), truth(record, number(argument))) <= 4


def check_mpmath(record: Operation) -> None:
    with mpmath.workdps(50):
        for arguments, parameter in cases(record):
            value = digits_rule(record)(*map(number, arguments), *parameter)
            with mpmath.workdps(80):
                true = truth(record, *map(number, arguments), *parameter)
                exact = digits_rule(record)(*map(number, arguments), *parameter)
            assert close(value, true, 46), (arguments, parameter)
            if record.name == "rpow":  # a root and a power: rounded once, not several times
                assert abs(value - exact) <= abs(exact) * mpmath.mpf(2) ** -mpmath.mp.prec, (arguments, parameter)
        for arguments in at_switch(record):
            assert digits_rule(record)(*map(number, arguments)) == truth(record, *map(number, arguments))


def check_ball(record: Operation) -> None:
    with precision(BITS), mpmath.workprec(BITS + 60):
        for arguments, parameter in cases(record):
            balls = [arb(fmpq(a.numerator, a.denominator)) for a in arguments]
            ball = over_balls(record)(*balls, *parameter)
            true = truth(record, *map(number, arguments), *parameter)
            assert ball.overlaps(arb(true) * (1 + arb(0, 1) * arb(2) ** (20 - BITS))), (arguments, parameter)
            assert ball.rad() <= arb(2) ** (30 - BITS) * (1 + abs(ball))
        for arguments in at_switch(record):  # either side may be meant, and no more than these
            ball = over_balls(record)(*(arb(fmpq(a.numerator, a.denominator)) for a in arguments))
            assert ball.contains(arb(truth(record, *map(number, arguments)))), arguments
            assert ball.rad() <= (1.001 if record.name in ("sign", "lt", "le") else 0), arguments


def check_smooth_ball(record: Operation) -> None:
    """Where it says something, what the other rule says; nothing at a jump, or at the end of a domain."""
    rule = record.smooth_ball or over_balls(record)
    for arguments, parameter in cases(record):
        balls = [arb(fmpq(a.numerator, a.denominator)) for a in arguments]
        if all(a != 0 for a in arguments):
            assert rule(*balls, *parameter).overlaps(over_balls(record)(*balls, *parameter))
    if record.is_function or record.name in ("mul", "ipow", "pi", "abs", "min", "max"):
        return
    across = [arb(0, 1), arb(2), arb(3)][: record.arity]
    if record.name == "rpow":
        across = [arb(0.5, 0.5).nonnegative_part()]
    assert not rule(*across, *PARAMETERS.get(record.name, [()])[0]).is_finite()
    assert rule(*[arb(1), arb(2), arb(3)][: record.arity], *PARAMETERS.get(record.name, [()])[0]).is_finite()


# ---- its calculus -------------------------------------------------------------------------------------------


def check_derivative(record: Operation) -> None:
    """On the graph, against differences of the true function."""
    if record.arity != 1:
        assert record.derivative is None
        return
    for parameter in PARAMETERS.get(record.name, [()]):
        graph = Graph(1)
        (variable,) = graph.variables
        itself = graph.power(variable, *parameter) if parameter else graph.apply(record.name, variable)
        form: LinearForm = record.rule("derivative")(graph, variable, *(parameter or (itself,)))
        with mpmath.workdps(60):
            program = ScalarProgram(build(graph, [[0]], {"slope": ((), [form])}), DIGITS)
            for (point,), _ in cases(record):
                values = program.start()
                program.put(values, 0, [number(point)])
                true = mpmath.diff(lambda t, p=parameter: truth(record, t, *p), number(point), h=mpmath.mpf(10) ** -25)
                assert close(program.output(values, "slope")[0], true, 20), point


def check_series(record: Operation) -> None:
    if not record.is_function:
        assert record.series is None
        return
    with precision(BITS), mpmath.workdps(60):
        for (point,), _ in cases(record):
            found = derivatives(record, arb(fmpq(point.numerator, point.denominator)))
            for order, value in enumerate(found):
                true = mpmath.diff(lambda t: truth(record, t), number(point), order)
                assert close(mpmath.mpf(value.str(30, radius=False)), true, 20), (point, order)


def check_folded(record: Operation) -> None:
    """What is folded is exact, and a rational value at zero is known."""
    points = [Fraction(0), *POINTS] if record.domain < 0 else list(POINTS)
    if record.arity != 1 or record.name in PARAMETERS:
        assert record.folded is None  # by ``Graph`` itself
        return
    for point in points:
        exact = sp.simplify(record.sympy(sp.Rational(point.numerator, point.denominator)))
        value = None if record.folded is None else record.folded(fmpq(point.numerator, point.denominator))
        if value is not None:
            assert exact == sp.Rational(int(value.p), int(value.q))
        else:
            assert not exact.is_Rational or (record.domain == 0 and point == 1)


def check_bounds(record: Operation) -> None:
    """For every function that people write and that is smooth everywhere."""
    if not record.in_text or not record.is_function or record.is_partial:
        assert record.bounds is None
        return
    for T in (Fraction(1, 4), Fraction(1), Fraction(4)):
        points = [number(T * k / 24) for k in range(-24, 25)]
        for order, bound in enumerate(record.rule("bounds")(T)):
            largest = max(abs(mpmath.diff(lambda t: truth(record, t), p, order)) for p in points)
            assert largest <= number(bound) * (1 + mpmath.mpf(10) ** -8), (T, order)
            assert T < 4 or number(bound) <= TIGHT * largest, (T, order)


# ---- what people get ----------------------------------------------------------------------------------------


def check_source(record: Operation) -> None:
    """In NumPy; the calls of the other libraries are run in tests of whole modules."""
    named = isinstance(record.sympy, type) and record.name != "mul"
    assert (record.source is not None) == (named or record.name == "bell")
    if record.source is None:
        return
    names: dict[str, Any] = {"np": np, "math": math}
    exec(record.source.definition("numpy"), names)
    for arguments, _ in cases(record):
        value = eval(record.source.call("numpy").format(", ".join(str(float(a)) for a in arguments)), names)
        with mpmath.workdps(50):
            assert ulps(float(value), truth(record, *map(number, arguments))) <= 16


def check_inverse(record: Operation) -> None:
    """Required, unless SymPy's own inverse is a function that has no source."""
    if not record.is_function or not record.in_text:
        assert record.inverse is None
        return
    known = record.sympy(x).inverse() if hasattr(record.sympy, "inverse") else None
    printable = known is None or known in SOURCES
    assert (record.inverse is not None) == printable
    for (point,), _ in cases(record) if record.inverse is not None else ():
        at = sp.Rational(point.numerator, point.denominator)
        roots = [sp.N(root, 30) for root in record.rule("inverse")(record.sympy(at), sp.together)]
        assert all(abs(sp.N(record.sympy(root) - record.sympy(at), 20, chop=True)) < 1e-12 for root in roots)
        assert any(abs(root - at) < 1e-12 for root in roots) or record.is_periodic


def check_undoes(record: Operation) -> None:
    if not record.is_function or not record.in_text:
        assert record.undoes is None
        return
    undone = {name for name, other in FUNCTIONS.items() if other.in_text and other.sympy(record.sympy(x)) == x}
    assert undone == ({record.undoes} if record.undoes else set())


def check_in_exp(record: Operation) -> None:
    written = record.sympy(x).rewrite(sp.exp) if record.is_function and record.in_text else sp.S.Zero
    assert record.in_exp == (written.has(sp.exp) and not written.has(sp.I, record.sympy))


def check_excess(record: Operation) -> None:
    """A measured number: none for what is computed in vectors; within a factor 2 of the one that was noted."""
    assert record.excess == 0 or record.compiled is not None or record.name == "rpow"
    noted = MEASURED_EXCESS.get(record.name, 0)
    assert noted / 2 <= record.excess <= 2 * noted


CHECKS: dict[str, Callable[[Operation], None]] = {
    name.removeprefix("check_"): check for name, check in dict(globals()).items() if name.startswith("check_")
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", CHECKS)
def test_every_record(rule: str) -> None:
    for record in OPERATIONS.values():
        try:
            CHECKS[rule](record)
        except Exception as error:
            raise AssertionError(f"{rule} of {record.name}: {error!r}") from error


def test_every_rule_is_checked() -> None:
    assert set(CHECKS) == set(Operation.__dataclass_fields__)


def test_every_arithmetic_has_every_operation() -> None:
    from verify.papers.huang_saddle.measures import jets

    tables = (intervals.OPERATIONS, intervals.PROVED, DIGITS.operations, jets.BALL.operations)
    assert all(set(table) == set(OPERATIONS) for table in tables)
    assert set(elementwise.CODES) - {"lin", "plain", "sum", "dense"} == set(OPERATIONS) - {"pi"}
    assert {name for name, r in OPERATIONS.items() if r.shape.kind == "switch"} >= {"select", "abs"}


# ---- where an operation switches, as part of a program --------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_every_arithmetic_agrees_at_the_switching_point(name: str) -> None:
    """NumPy, numba with one lane and with many, and mpmath; ``<`` and ``<=`` differ there alone."""
    record = OPERATIONS[name]
    points = at_switch(record) + [arguments for arguments, _ in cases(record)]
    graph = Graph(record.arity)
    program = build(graph, [list(range(record.arity))], {"value": ((), [graph.apply(name, *graph.variables)])})
    expected = [float(truth(record, *map(number, arguments))) for arguments in points]
    inputs = np.array(points, dtype=np.float64)
    for encode in (None, Encoded):
        together = ArrayProgram(program, encode).session(len(points))
        together.put(0, inputs)
        assert together.take("value").tolist() == expected
        for k, arguments in enumerate(inputs):
            alone = ArrayProgram(program, encode).session(1)
            alone.put(0, arguments[None])
            assert alone.take("value").tolist() == [expected[k]]
    digits = ScalarProgram(program, DIGITS)
    for arguments, value in zip(points, expected, strict=True):
        values = digits.start()
        digits.put(values, 0, list(map(number, arguments)))
        assert digits.output(values, "value")[0] == value


@pytest.mark.parametrize("backend", ["tape", "compiled", "lambdify"])
@pytest.mark.parametrize(("condition", "value"), [("y < 0", 2.0), ("y <= 0", 1.0), ("y > 0", 2.0), ("y >= 0", 1.0)])
def test_a_condition_holds_at_its_edge_or_not(backend: Any, condition: str, value: float) -> None:
    problem = BilevelProblem(f"Piecewise((1, {condition}), (2, True)) + x", "y**2/2 - x*y", "x", "y")
    kernels = compile_kernels(problem, backend=backend)
    assert float(kernels.f([0.0], [0.0])) == value
    assert kernels.f(np.zeros((40, 1)), np.zeros((40, 1))).tolist() == [value] * 40


# ---- a problem with each function, all the way --------------------------------------------------------------


def problem_with(name: str) -> BilevelProblem:
    return BilevelProblem(f"{name}(1 + x*y/3) + y", f"y**2 + {name}(1 + y/4)/8 - x*y", "x", "y")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, record in IN_TEXT.items() if record.is_function])
def test_compiled_functions(name: str) -> None:
    """The three engines agree with certified digits; one point has the bits of that point among others."""
    problem = problem_with(name)
    points = np.array([[0.5], [-0.75], [0.125], *np.linspace(-1, 1, 40)[:, None]])
    certificate = evaluate(problem, ["1/2"], digits=20)
    results = {backend: compile_kernels(problem, backend=backend) for backend in ("tape", "compiled", "lambdify")}
    for kernels in results.values():
        assert kernels.hess_phi(points)[0, 0, 0] == pytest.approx(float(certificate.hess_phi[0][0]), rel=1e-12)
        assert kernels.grad_phi(points)[0, 0] == pytest.approx(float(certificate.grad_phi[0]), rel=1e-13)
    ready = ArrayProgram(problem.tape.program(("f", "g_yy", "g_xy")), Encoded)
    together, alone = ready.session(len(points)), ready.session(1)
    together.put(0, np.hstack([points, points]))
    for k, point in enumerate(points):
        alone.put(0, np.hstack([point, point])[None])
        for output in ("f", "g_yy", "g_xy"):
            assert together.take(output)[k] == alone.take(output)[0]


@pytest.mark.parametrize("name", ["erf", "asinh"])
def test_what_is_new_goes_all_the_way(name: str, tmp_path: Path) -> None:
    """Formulas, LaTeX, exported source, TOML."""
    problem = BilevelProblem(f"{name}(x*y) + y", "y**2/2 - x*y", "x", "y")
    derivation = derive(problem)
    t = problem.x[0]
    function = OPERATIONS[name].sympy
    assert sp.simplify(derivation.phi - function(t**2) - t) == 0
    assert sp.simplify(derivation.grad_phi[0] - sp.diff(function(t**2) + t, t)) == 0
    assert sp.latex(function(t**2)) in derivation.latex()
    module: dict[str, Any] = {}
    exec(derivation.source("numpy"), module)
    expected = float(sp.diff(function(t**2) + t, t, 2).subs(t, sp.Rational(1, 2)).evalf(20))
    assert module["hess_phi"]([0.5])[0, 0] == pytest.approx(expected, rel=1e-13)
    assert problem.kernels.hess_phi([0.5])[0, 0] == pytest.approx(expected, rel=1e-13)
    path = tmp_path / "problem.toml"
    problem.save(path)
    assert BilevelProblem.load(path) == problem
