"""The whole face of the library in a few seconds, for places without pytest: `python tests/smoke.py`.

It uses nothing but what an installation without extras has, and prints one line when all is well.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from importlib.metadata import entry_points
from importlib.resources import files
from io import StringIO

import numpy as np

import bilevel_sym
import verify
from bilevel_sym import AID, BilevelProblem, Descent, compile_kernels, derive, evaluate, solve, zoo
from bilevel_sym.cli import main

PROBLEM = BilevelProblem("x*y + y", "(1 + x**2)*y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-2, 2)})


def formulas() -> None:
    """Derivation, kernels and certificate tell the same gradient."""
    exact = derive(PROBLEM).grad_phi.subs("x", "1/3")[0]
    kernel = compile_kernels(PROBLEM).grad_phi([1 / 3])[0]
    certificate = evaluate(PROBLEM, ["1/3"], digits=30).grad_phi[0]
    assert abs(kernel - float(exact)) < 1e-14
    assert certificate.contains(exact)


def runs() -> None:
    """Solvers reach the minimum, whose place is known: 1 - sqrt(2)."""
    found = solve(PROBLEM, Descent(AID(D=20, N=5, tau=0.4), 0.2), np.zeros((3, 1)), steps=300, rng=0)
    assert np.allclose(found.x, 1 - 2**0.5, atol=1e-6)


def verdicts() -> None:
    """The verifier judges the zoo, and its test kit tells right from wrong."""
    report = verify.run(zoo.get("scalar").problem, claims=["grad-Lipschitz"], effort=0.125)
    assert {str(result.verdict) for result in report.results} == {"HOLDS"}
    assert len(verify.stationary_points(zoo.get("saddle").problem)) == 3
    assert str(verify.check_hypergradient(PROBLEM.kernels.grad_phi, PROBLEM).verdict) == "HOLDS"
    wrong = verify.gallery.defects()[0]
    assert verify.check_hypergradient(wrong.candidate(PROBLEM), PROBLEM).cause == wrong.cause
    assert len(verify.errata()) > 50


def data() -> None:
    """What is no Python is there too: the table of flowers, the marks of typing, the entry points."""
    assert len(zoo.iris()) == 150
    assert all(zoo.get(name).problem.d > 0 for name in zoo.names())
    for package in (bilevel_sym, verify):
        folder = files(package)
        assert folder.joinpath("py.typed").is_file()
        assert folder.joinpath("__init__.pyi").is_file()
    for group in ("pytest11", "hypothesis", "console_scripts"):
        assert any(entry.name == "bilevel-sym" for entry in entry_points(group=group)), group


def command_line() -> None:
    """Every command that is quick."""
    for line in ("derive zoo:scalar", "certify zoo:scalar --at x=1/3", "zoo", "errata"):
        with redirect_stdout(StringIO()) as shown:
            assert main(line.split()) == 0, line
        assert shown.getvalue(), line


if __name__ == "__main__":
    for step in (formulas, runs, verdicts, data, command_line):
        step()
    print(f"bilevel-sym works: Python {sys.version.split()[0]}, {bilevel_sym.__file__}")
