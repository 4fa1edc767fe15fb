"""A figure of matplotlib as inline SVG: only what draws, with identifiers of its own on a page of several."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from bilevel_sym.plotting.style import svg
from bilevel_sym.typing import Figure
from verify.reporting.markup import Markup, element, tag

__all__ = ["figure_of"]

ELEMENTS = frozenset({"svg", "g", "defs", "path", "use", "rect", "clipPath", "image", "circle", "line", "polygon"})
ATTRIBUTES = frozenset(
    {
        "clip-path", "clip-rule", "d", "fill", "height", "href", "id", "preserveAspectRatio", "stroke", "style",
        "transform", "viewBox", "width", "x", "y",
    }
)  # fmt: skip
PICTURE = "data:image/png;base64,"


def figure_of(figure: Figure, name: str, alt: str, caption: str) -> Markup:
    """The figure with a caption, and a text for who does not see it.

    - ``figure``: what is drawn.
    - ``name``: a word that no other figure of the page has.
    - ``alt``: what is to be seen.
    - ``caption``: what it means.

    >>> from matplotlib.figure import Figure
    >>> figure_of(Figure(figsize=(1, 1)), "one", "nothing", "An empty figure.")[:54]
    '<figure><svg role="img" aria-labelledby="one-alt" widt'
    """
    root = ElementTree.fromstring(svg(figure))
    drawn = _drawn(root, name)
    marked = Markup(drawn.replace("<svg ", f'<svg role="img" aria-labelledby="{name}-alt" ', 1))
    start, end = marked.split(">", 1)
    titled = Markup(f"{start}>{tag('title', alt, id=f'{name}-alt')}{end}")
    return tag("figure", titled, tag("figcaption", caption))


def _drawn(node: ElementTree.Element, name: str) -> Markup:
    kind = _local(node.tag)
    own = {_local(key): value for key, value in node.attrib.items()}
    attributes = {key: _inside(value, key, name) for key, value in own.items() if _allowed(key, value)}
    return element(kind, attributes, (_drawn(child, name) for child in node if _local(child.tag) in ELEMENTS))


def _local(name: object) -> str:
    """A name without its namespace; of a comment none."""
    return name.rpartition("}")[2] if isinstance(name, str) else ""


def _allowed(key: str, value: str) -> bool:
    return key in ATTRIBUTES and (key != "href" or value.startswith(("#", PICTURE)))


def _inside(value: str, key: str, name: str) -> str:
    """References and identifiers, by the name of the figure."""
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return re.sub(r"^#", f"#{name}-", value)
    return re.sub(r"url\(#", f"url(#{name}-", value)
