"""Certificates as JSON files, for ``verify.recheck`` or any other program to prove again.

A file holds the text of the problem, what is claimed of it in decimals that are rounded outward, and hints for the
proof: cuts of a box, points and directions. Nobody has to believe any of it.
"""

from __future__ import annotations

import decimal
import json
import os
from collections.abc import Mapping
from typing import Any

import flint
from flint import arb

from bilevel_sym.graph.precision import precision
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.system.writing import write

__all__ = [
    "EXACT",
    "FORMAT",
    "LOOSE",
    "content_of",
    "decimal_ball",
    "problem_text",
    "rounded_down",
    "rounded_up",
    "write_certificate",
]

FORMAT = "bilevel-sym/saved/1"
DIGITS = 8  # of a bound in a file
EXACT, LOOSE = "2e-8", "1e-4"  # what another arithmetic may need to prove the same, relatively


def rounded_up(value: float, slack: str = EXACT) -> str:
    """A decimal above a number that is a little larger, relatively by ``slack``; zero stays zero.

    >>> rounded_up(2.0), rounded_up(-2.0), rounded_up(2.0, LOOSE), rounded_up(0.0)
    ('2.0000001', '-1.9999999', '2.0002', '0')
    """
    return _rounded(value, decimal.ROUND_CEILING, decimal.Decimal(slack))


def rounded_down(value: float, slack: str = EXACT) -> str:
    """A decimal below a number that is a little smaller; zero stays zero.

    >>> rounded_down(2.0)
    '1.9999999'
    """
    return _rounded(value, decimal.ROUND_FLOOR, -decimal.Decimal(slack))


def _rounded(value: float, rounding: str, slack: decimal.Decimal) -> str:
    exact = decimal.Decimal(value)
    if not exact.is_finite() or not exact:
        return "0" if exact == 0 else str(exact).lower().replace("infinity", "inf")
    wide = decimal.Context(prec=60)
    moved = wide.add(exact, wide.multiply(abs(exact), slack))
    return str(decimal.Context(prec=DIGITS, rounding=rounding).plus(moved).normalize())


def decimal_ball(ball: Any, digits: int) -> list[str]:
    """The middle of a ball in decimals, and a bound of how far the truth is from that, never less than it can show.

    >>> decimal_ball(arb(1) / 3, 6), decimal_ball(arb(0), 6)
    (['0.333333', '7.00E-7'], ['0', '1E-12'])
    """
    with precision(max(flint.ctx.prec, 4 * digits + 64)):
        middle = "0" if ball.contains(0) else ball.mid().str(digits, radius=False)
        mantissa, exponent = (ball - arb(middle)).abs_upper().man_exp()
    context = decimal.Context(prec=40, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
    radius = context.multiply(decimal.Decimal(int(mantissa)), context.power(2, int(exponent)))
    size = decimal.Decimal(middle)
    least = context.scaleb(abs(size) or decimal.Decimal(1), -digits if size else -2 * digits)
    # more than both: for the rounding errors here, and of whoever proves it
    more = context.add(context.multiply(radius, decimal.Decimal("1.1")), least)
    return [middle, str(decimal.Context(prec=3, rounding=decimal.ROUND_CEILING, Emax=decimal.MAX_EMAX,
                                        Emin=decimal.MIN_EMIN).plus(more))]  # fmt: skip


def problem_text(problem: BilevelProblem) -> str:
    """The problem as it stands in a file.

    >>> print(problem_text(BilevelProblem("x*y", "y**2 - x*y", "x", "y")), end="")
    kind = "bilevel"
    x = ["x"]
    y = ["y"]
    f = "x*y"
    g = "-x*y + y**2"
    """
    return problem.to_toml()


def write_certificate(
    path: str | os.PathLike[str], kind: str, problem: BilevelProblem, says: Mapping[str, Any]
) -> None:
    """Write the file, whole or not at all.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.json"
    >>> write_certificate(path, "point", BilevelProblem("x*y", "y**2 - x*y", "x", "y"), {"x": {"x": "1"}})
    >>> sorted(json.loads(path.read_text()))
    ['format', 'kind', 'problem', 'x']
    """
    write(path, json.dumps(content_of(kind, problem, says), indent=1, allow_nan=False) + "\n")


def content_of(kind: str, problem: BilevelProblem, says: Mapping[str, Any]) -> dict[str, Any]:
    """What the file holds.

    >>> sorted(content_of("point", BilevelProblem("x*y", "y**2 - x*y", "x", "y"), {"x": {"x": "1"}}))
    ['format', 'kind', 'problem', 'x']
    """
    return {"format": FORMAT, "kind": kind, "problem": problem_text(problem), **says}
