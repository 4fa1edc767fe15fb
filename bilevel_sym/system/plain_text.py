"""Text from outside (names, paths) before it is shown: refused at the door, or escaped for where it goes.

A name can clear a terminal, write a line that looks like a verdict, or carry a script into a page. So control
characters never get into a problem, and what is shown somewhere goes through the function for that place.
"""

from __future__ import annotations

import html
import os
import re

from bilevel_sym.errors import InvalidProblem, visible

__all__ = ["as_html", "as_markdown", "as_title", "check_title", "named"]

TITLE_CHARACTERS = 200  # characters of a title


def check_title(title: object) -> str:
    """A title that can stand in one line, itself.

    >>> check_title("ridge, d = 3")
    'ridge, d = 3'
    >>> check_title("toy\\nHOLDS")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: the name 'toy\\nHOLDS' has a character that cannot be printed
    try: one line of letters, digits, spaces and signs
    """
    if not isinstance(title, str):
        raise InvalidProblem(f"name must be text, but is a {type(title).__name__}")
    if len(title) > TITLE_CHARACTERS:
        raise InvalidProblem(f"the name has {len(title)} characters", hint=f"at most {TITLE_CHARACTERS}")
    if not title.isprintable():
        raise InvalidProblem(
            f"the name {title!r} has a character that cannot be printed",
            hint="one line of letters, digits, spaces and signs",
        )
    return title


def named(path: str | os.PathLike[str]) -> str:
    """A path in one line of a message.

    >>> print(named("a\\nb.toml"))
    a\\nb.toml
    """
    return visible(os.fspath(path), lines=False)


def as_markdown(text: str) -> str:
    """Text that Markdown shows as it is, tags and links included.

    >>> print(as_markdown("<b> [y*](x)"))
    &lt;b&gt; \\[y\\*\\](x)
    """
    safe = html.escape(" ".join(visible(text).split("\n")), quote=False)
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", safe)


def as_html(text: str) -> str:
    """Text that a page shows as it is.

    >>> as_html("<script>")
    '&lt;script&gt;'
    """
    return html.escape(visible(text))


def as_title(text: str) -> str:
    """Text that matplotlib writes as it is: a dollar would begin a formula.

    >>> print(as_title("1$"))
    1\\$
    """
    return visible(text, lines=False).replace("$", r"\$")
