"""Pieces of a page. Text is escaped where it enters; only what was made here is markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bilevel_sym.system.plain_text import as_html

__all__ = ["Markup", "code", "listed", "number", "paragraph", "scrolled", "table", "tag"]

VOID = frozenset({"meta", "input"})  # elements without an end


class Markup(str):
    """Text that is markup already; any other is escaped before it becomes a part of one.

    >>> tag("p", "<b>", Markup("<i>x</i>"))
    '<p>&lt;b&gt;<i>x</i></p>'
    """

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """An element; ``class_`` is class, ``aria_label`` aria-label, and an attribute without a value is empty.

    >>> tag("a", "1 < 2", href="#top", class_="up", data_x='"')
    '<a href="#top" class="up" data-x="&quot;">1 &lt; 2</a>'
    """
    return element(name, {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}, children)


def element(name: str, attributes: Mapping[str, str], children: Iterable[str] = ()) -> Markup:
    """The same, with attributes as they are written.

    >>> element("svg", {"viewBox": "0 0 1 1"})
    '<svg viewBox="0 0 1 1"></svg>'
    """
    given = "".join(f' {key}="{as_html(value)}"' for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{together(children)}</{name}>")


def together(children: Iterable[str]) -> Markup:
    """Pieces one after the other.

    >>> together(["<", Markup("<b></b>")])
    '&lt;<b></b>'
    """
    return Markup("".join(child if isinstance(child, Markup) else as_html(child) for child in children))


def paragraph(*children: str) -> Markup:
    """A paragraph.

    >>> paragraph("x & y")
    '<p>x &amp; y</p>'
    """
    return tag("p", *children)


def code(text: str) -> Markup:
    """Lines as they are, which scroll where they are long.

    >>> code("x < 1")
    '<pre tabindex="0"><code>x &lt; 1</code></pre>'
    """
    return tag("pre", tag("code", text), tabindex="0")


def listed(items: Iterable[str]) -> Markup:
    """A list.

    >>> listed(["a", "b"])
    '<ul><li>a</li><li>b</li></ul>'
    """
    return tag("ul", *(tag("li", item) for item in items))


def scrolled(inner: str, label: str) -> Markup:
    """What may be wider than the page: it scrolls, by keyboard too.

    >>> scrolled(Markup("<b></b>"), "wide")
    '<div class="wide" role="group" tabindex="0" aria-label="wide"><b></b></div>'
    """
    return tag("div", inner, class_="wide", role="group", tabindex="0", aria_label=label)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], **attributes: str) -> Markup:
    """A table with a caption; the first cell of a row is its head.

    - ``caption``: what it shows.
    - ``heads``: of the columns.
    - ``rows``: a cell for each column.
    - ``attributes``: of the table itself.

    >>> table("squares", ["x", "x^2"], [["2", "4"]]).count("scope")
    3
    """
    head = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in heads)))
    body = tag("tbody", *(tag("tr", tag("th", row[0], scope="row"), *(tag("td", c) for c in row[1:])) for row in rows))
    return scrolled(tag("table", tag("caption", caption), head, body, **attributes), caption)


def number(value: float | None, digits: int = 5) -> str:
    """A number for a cell; nothing for None.

    >>> number(0.1234567), number(None)
    ('0.12346', '')
    """
    return "" if value is None else f"{value + 0.0:.{digits}g}"
