"""``verify.run`` of some problems against stored verdicts: ``python -m benchmarks.mutants_probe FILE``.

Without the file the verdicts are stored there. With it, the first verdict that has become VIOLATED or INCONCLUSIVE ends
the run with the code 3, and says which. Whoever runs it on a changed package sees an exception as code 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import verify
from bilevel_sym import zoo
from bilevel_sym.theories import Variant

__all__ = ["PROBLEMS", "main", "noticed"]

PROBLEMS = ("saddle", "minimax_not_nash", "stochastic_noise", "quadratic", "scalar")
# what has no slack is asked of all problems first: most mutants end there
FIRST = (
    "own:formulas", "own:routes", "eq:aid-step2", "est-vq", "own:itd", "unlabelled:gdmax-estimate", "estG",
    "alg:perturbedalg", "alg:iNEON", "alg:INEONstocbio",
)  # fmt: skip
PRINTED = ("alg:perturbedalg", "alg:iNEON", "alg:INEONstocbio")  # run line by line as they are printed, too
NOTICED = 3
PASSES: tuple[tuple[Sequence[str] | None, Variant], ...] = (
    (FIRST, "corrected"), (PRINTED, "printed"), (None, "corrected"),
)  # fmt: skip
BAD = ("VIOLATED", "INCONCLUSIVE")


def verdicts(name: str, claims: Sequence[str] | None, variant: Variant) -> dict[str, str]:
    """What is said of each statement, or of some, about a problem of the zoo."""
    report = verify.run(zoo.get(name).problem, claims=claims, rng=0, effort="quick", variant=variant)
    return {f"{result.label} {result.part}".strip() + f", {variant}": str(result.verdict) for result in report.results}


def noticed(before: dict[str, str], now: dict[str, str]) -> str:
    """The first statement that has become VIOLATED or INCONCLUSIVE, in words; empty where there is none.

    >>> noticed({"lem:descent": "HOLDS"}, {"lem:descent": "VIOLATED"})
    'lem:descent: HOLDS before, now VIOLATED'
    >>> noticed({"lem:descent": "HOLDS"}, {"lem:descent": "HOLDS"})
    ''
    """
    for name, verdict in now.items():
        if verdict in BAD and before.get(name) != verdict:
            return f"{name}: {before.get(name, 'silent')} before, now {verdict}"
    return ""


def main(arguments: list[str] | None = None) -> int:
    """Store verdicts, or compare with them."""
    store = Path((sys.argv[1:] if arguments is None else arguments)[0])
    known = json.loads(store.read_text("utf-8")) if store.exists() else None
    found: dict[str, dict[str, str]] = {name: {} for name in PROBLEMS}
    for claims, variant in PASSES:
        for name in PROBLEMS:
            found[name] |= (now := verdicts(name, claims, variant))
            what = "" if known is None else noticed(known[name], now)
            if what:
                print(f"{name}: {what}")
                return NOTICED
    if known is None:
        store.write_text(json.dumps(found, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
