"""LaTeX as a row of tokens, and what its commands mean: the part of it in which formulas are printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

__all__ = ["ESCAPED", "FENCES", "FUNCTIONS", "LETTERS", "OPERATORS", "SPACES", "tokens"]

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\s+|.", re.DOTALL)


def _pairs(text: str) -> Mapping[str, str]:
    """Commands and what they mean, in turn."""
    words = text.split()
    return MappingProxyType(dict(zip(words[::2], words[1::2], strict=True)))


LETTERS = _pairs(
    "alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ "
    "mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi φ varphi ϕ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ "
    "Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω nabla ∇ partial ∂ infty ∞ ell ℓ top ⊤"
)
OPERATORS = _pairs(
    "cdot · times × odot ⊙ oslash ⊘ le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ lt < gt > in ∈ sum ∑ prod ∏ int ∫ to → mid ∣ "
    "wedge ∧ vee ∨ neg ¬ ldots … cdots ⋯ colon : circ ∘ sim ∼ pm ± backslash \\ star ⋆ ast ∗"
)
FENCES = _pairs(
    "lVert ‖ rVert ‖ lvert | rvert | langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ lbrace { rbrace } vert | "
    "Vert ‖ lbrack [ rbrack ]"
)
_NAMES = "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan exp log ln max min det sup inf arg lim"
FUNCTIONS = frozenset(_NAMES.split(" "))
SPACES: Mapping[str, str] = MappingProxyType(
    {"quad": "1em", "qquad": "2em", ",": "0.17em", ":": "0.22em", ";": "0.28em", " ": "0.3em", "!": "0"}
)
ESCAPED = frozenset("#$%&_{}")  # what a backslash makes a letter


def tokens(text: str) -> Iterator[str]:
    r"""Commands, numbers, and single letters; white space is one space.

    >>> list(tokens(r"\frac{x_{1}}{27}  "))
    ['\\frac', '{', 'x', '_', '{', '1', '}', '}', '{', '27', '}', ' ']
    """
    for found in _TOKEN.finditer(text):
        yield " " if found[0].isspace() else found[0]
