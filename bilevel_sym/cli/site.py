"""The documentation site: its address, its pages, and which of them speaks of a word. Nothing is asked of a network."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from bilevel_sym.errors import InvalidArgument

__all__ = ["PAGES", "SITE", "pages_about"]

SITE = "https://bilevel-sym.github.io/bilevel-sym/"

# topic: where its page is, and what else a reader may call it; tests compare them with the pages that there are
PAGES: Mapping[str, tuple[str, str]] = MappingProxyType({
    "arrays": ("guide/arrays.html", "vectors matrices data numpy sparse rows features softmax regression"),
    "campaigns": ("guide/campaigns.html", "cluster dask grid plan seeds parallel table"),
    "certificates": ("guide/certificates.html", "certify evaluate digits balls proof krawczyk recheck"),
    "changelog": ("project/changelog.html", "changes news versions"),
    "command-line": ("guide/command-line.html", "cli shell terminal json options exit codes"),
    "constraints": ("guide/constraints.html", "box barrier penalty simplex feasible"),
    "contributing": ("project/contributing.html", "architecture tests development"),
    "coverage": ("guide/coverage.html", "statements lemmas theorems verified paper"),
    "derivation": ("guide/derivation.html", "derive formulas gradient hessian latex source closed form"),
    "errata": ("project/errata.html", "misprints errors paper"),
    "extending": ("guide/extending.html", "plugins entry points own algorithm estimator claim"),
    "glossary": ("guide/glossary.html", "words meaning names"),
    "kernels": ("guide/kernels.html", "float64 numbers batch numba fast scipy"),
    "limits": ("guide/limits.html", "size large time slow how long rows scale"),
    "measured": ("project/measured.html", "benchmarks results speed timings"),
    "migration": ("guide/migration.html", "upgrade 0.1 0.2 renamed moved removed"),
    "non-smooth": ("guide/non-smooth.html", "abs max min hinge lasso kink nonsmooth"),
    "notebooks": ("notebooks/index.html", "tutorial examples stories quick start"),
    "playground": ("playground.html", "browser pyodide try online"),
    "plots": ("guide/plots.html", "pictures figures landscape matplotlib"),
    "problem": ("guide/problem.html", "toml file grammar parameters minimax stochastic zoo"),
    "recipes": ("guide/recipes.html", "jaxopt optimistix torch pytorch library cross-validation"),
    "reference": ("reference/index.html", "api names functions classes"),
    "report": ("guide/report.html", "html page colleague show"),
    "sizes": ("guide/sizes.html", "memory large limits effort"),
    "solvers": ("guide/solvers.html", "solve minimize algorithms descent saddle escape step"),
    "state-of-the-field": ("guide/state-of-the-field.html", "other libraries judged comparison"),
    "test-kit": ("guide/test-kit.html", "check hypergradient pytest candidate wrong bug"),
    "theories": ("guide/theories.html", "papers ji2021 huang"),
    "verdicts": ("guide/verdicts.html", "verify claims constants smoothness stationary points effort"),
    "which-tool": ("guide/which-tool.html", "alternatives jax jaxopt optimistix cvxpylayers pepit comparison compare"),
})  # fmt: skip


def pages_about(word: str) -> list[str]:
    """The addresses of the pages about a word, those named so first.

    >>> pages_about("kernels")
    ['https://bilevel-sym.github.io/bilevel-sym/guide/kernels.html']
    >>> pages_about("lasso")
    ['https://bilevel-sym.github.io/bilevel-sym/guide/non-smooth.html']
    """
    wanted = word.strip().lower()
    named = [path for topic, (path, _) in PAGES.items() if wanted in (topic, topic.rstrip("s"), f"{topic}s")]
    told = [path for path, words in PAGES.values() if wanted in words.split()]
    if found := named or told:
        return [SITE + path for path in found]
    known = [*PAGES, *(other for _, words in PAGES.values() for other in words.split())]
    near = difflib.get_close_matches(wanted[:60], known, n=1)
    raise InvalidArgument(
        f"no page is about {word[:60]!r}",
        hint=f"did you mean {near[0]}?" if near else "bilevel-sym docs lists the topics",
    )
