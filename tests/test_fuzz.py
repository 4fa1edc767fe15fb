"""Random texts: what we accept equals what SymPy itself parses, and reading it executes nothing.

Run as a program with a count and a seed, it does the work under an audit hook and prints a report as JSON.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy as sp
from helpers import THOROUGH, calls_of
from hostile import Watch
from sympy.parsing.sympy_parser import parse_expr, rationalize, standard_transformations

from bilevel_sym.problem.parsing import FUNCTIONS, parse_expression

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("x", "y", "z", "x1", "gamma")
KINDS: tuple[dict[str, bool], ...] = ({}, {"real": True})
HARMLESS = {"builtins.id", "array.__new__"}
SPOILERS = [*"()[]{}.,:;=<>!+-*/^%&|~@#'\"\\ \n\t\0_0159xE", "**", "//", "==", "and", "True", "\u0445", "1e9"]


class Grammar:
    """Random sentences of the grammar."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def number(self) -> str:
        digit, two = self.random.randint(0, 9), self.random.randint(1, 99)
        return self.pick(
            f"{digit}", f"{digit}", f"{two}", f"{digit}.{two}", f".{two}", f"{digit}.", f"{two}e-{digit}", f"{digit}E2"
        )

    def leaf(self) -> str:
        if self.chance(0.65):
            return self.pick(*NAMES)
        return self.number() if self.chance(0.9) else self.pick("pi", "E")

    def call(self, depth: int) -> str:
        if self.chance(0.85):
            name = self.pick(*(name for name in FUNCTIONS if name not in ("min", "max", "Piecewise")))
            return f"{name}({self.sum(depth)})"
        if self.chance(0.6):
            arguments = [self.sum(depth - 1) for _ in range(self.random.randint(2, 3))]
            return f"{self.pick('min', 'max')}({', '.join(arguments)})"
        condition = f"{self.sum(0)} {self.pick('<', '<=', '>', '>=')} {self.sum(0)}"
        last = self.pick("True", "True", f"{self.sum(0)} < {self.sum(0)}")
        return f"Piecewise(({self.sum(depth)}, {condition}), ({self.sum(0)}, {last}))"

    def node_of(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.4):
            return self.leaf()
        return self.call(depth - 1) if self.chance(0.6) else f"({self.sum(depth - 1)})"

    def factor(self, depth: int) -> str:
        text = self.node_of(depth)
        if self.chance(0.2):
            text += "**" + self.pick(
                "2", "3", "-1", "(1/2)", "0.5", "-2", self.node_of(depth - 1), f"-{self.node_of(0)}"
            )
        return f"{self.pick('-', '-', '+', '- -')}{text}" if self.chance(0.12) else text

    def product(self, depth: int) -> str:
        text = self.factor(depth)
        while self.chance(0.33):
            text += self.pick("*", " * ", "/", " / ") + self.factor(depth)
        return text

    def sum(self, depth: int) -> str:
        text = self.product(depth)
        while self.chance(0.33):
            text += self.pick("+", " + ", "-", " - ", " -\n ") + self.product(depth)
        return text

    def spoilt(self, text: str) -> str:
        """One character put in, taken out or replaced."""
        at = self.random.randrange(len(text) + 1)
        return text[:at] + self.pick("", *SPOILERS) + text[at + self.random.randint(0, 1) :]

    def text(self) -> str:
        text = self.sum(self.random.choice((0, 1, 1, 2)))
        return self.spoilt(text) if self.chance(0.25) else text


def sympy_parses(text: str, symbols: dict[str, sp.Symbol]) -> sp.Expr:
    """SymPy's own reading, with our names for its functions."""
    given = {**FUNCTIONS, **symbols, "pi": sp.pi, "E": sp.E}
    needed = {name: getattr(sp, name) for name in ("Integer", "Float", "Rational", "Symbol", "Function")}
    one_line = " ".join(text.split())
    return parse_expr(one_line, given, (*standard_transformations, rationalize), {**needed, "__builtins__": {}})


def fuzz(count: int, seed: int) -> dict[str, object]:
    watch = Watch()
    grammar = Grammar(seed)
    outcomes: Counter[str] = Counter()
    differing: list[str] = []
    events: Counter[str] = Counter()
    symbols = [{name: sp.Symbol(name, **kind) for name in NAMES} for kind in KINDS]
    for i in range(count):
        text, names = grammar.text(), symbols[i % len(symbols)]
        result: list[sp.Expr] = []
        seen = watch.observe(lambda: result.append(parse_expression(text, names)))  # noqa: B023
        outcomes[seen.outcome] += 1
        events.update(seen.events)
        if result and result[0] != sympy_parses(text, names):
            differing.append(text)
    return {"outcomes": outcomes, "differing": differing, "events": events}


def run(count: int, seed: int) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=900)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check(count: int, seed: int) -> None:
    report = run(count, seed)
    assert report["differing"] == []
    assert set(report["outcomes"]) == {"accepted", "UnsafeExpression"}
    assert sum(report["outcomes"].values()) == count
    assert report["outcomes"]["accepted"] >= count / 2
    assert set(report["events"]) <= HARMLESS


@pytest.mark.slow
def test_what_we_accept_is_what_sympy_parses() -> None:
    check(1_500, seed=1)


@pytest.mark.slow
@pytest.mark.in_ci(seed=(2, 3))
@pytest.mark.parametrize("seed", range(2, 42 if THOROUGH else 6))
def test_many_texts(seed: int) -> None:
    check(2_500, seed)


def test_the_comparison_with_sympy_can_fail() -> None:
    symbols = {name: sp.Symbol(name) for name in NAMES}
    assert parse_expression("2*(x + y)*z", symbols) == sympy_parses("2*(x + y)*z", symbols)
    assert parse_expression("z*2*(x + y)", symbols) != sympy_parses("2*(x + y)*z", symbols)


def work_of(action: Callable[[str], object], text: str) -> int:
    sp.core.cache.clear_cache()
    return calls_of(lambda: action(text))


TERMS = {
    "polynomial": "0.{k}*x**{p}*y1 - {k}*z*gamma",
    "functions": "{k}*sin(x)*y + exp(-0.{k}*z)/{k}",
    "sums in functions": "tanh(0.{k}*x - {k}*y + 1.5)",
}


@pytest.mark.slow
@pytest.mark.in_ci(kind=["polynomial"])
@pytest.mark.parametrize("kind", TERMS if THOROUGH else ["polynomial", "sums in functions"])
def test_500_terms_take_half_of_sympys_work_at_most(kind: str) -> None:
    names = {name: sp.Symbol(name) for name in ("x", "y", "z", "y1", "gamma")}
    text = " + ".join(TERMS[kind].format(k=k + 10, p=k % 7) for k in range(500))
    ours = work_of(lambda text: parse_expression(text, names), text)
    theirs = work_of(lambda text: sp.sympify(text, locals=names), text)
    assert ours <= theirs / 2, (ours, theirs)


if __name__ == "__main__":
    print(json.dumps(fuzz(int(sys.argv[1]), int(sys.argv[2]))))
