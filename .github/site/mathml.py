"""Formulas as MathML, which browsers draw themselves: no script and no font comes from anywhere.

A renderer of mathematics for Sphinx. A formula that cannot be converted is a warning, and warnings end the build.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from docutils import nodes
from latex2mathml import exceptions
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

__all__ = ["setup"]

KNOWN_AS = {r"\\arg(?![a-zA-Z])": r"\\operatorname{arg}", r"\{aligned\}": "{align*}"}  # to the converter
REFUSALS = tuple(kind for kind in vars(exceptions).values() if isinstance(kind, type))
LOG = logging.getLogger(__name__)


def mathml(node: nodes.Element, display: str) -> str:
    """The formula of a node."""
    text = node.astext()
    known = functools.reduce(lambda latex, pair: re.sub(*pair, latex), KNOWN_AS.items(), text)
    try:
        made = convert(known, display=display)
    except REFUSALS as error:
        LOG.warning("the formula %r has no MathML: %s", text, type(error).__name__, location=node)
        return ""
    if unknown := re.findall(r"\\\w+", made):
        LOG.warning("in the formula %r %s is not known", text, ", ".join(unknown), location=node)
    return made


def inline(visitor: Any, node: nodes.Element) -> None:
    """A formula in a line."""
    visitor.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def block(visitor: Any, node: nodes.Element) -> None:
    """A formula on lines of its own."""
    visitor.body.append(f'<div class="formula">{mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
