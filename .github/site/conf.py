"""Sphinx's settings for the site; ``.ci/site`` builds it, from what ``pages.py`` lays out.

Sphinx with MyST-NB and the PyData theme, and not MkDocs with Material, for four reasons. Formulas become MathML while
the site is built, so that pages need no script and no network for them. MyST-NB takes the outputs of executed
notebooks as they are stored, LaTeX among them. sphinx-copybutton leaves prompts and output out of what it copies. And
NumPy, SciPy and pandas, whose users come here, look and search the same way.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import ziamath  # noqa: E402, for the font that it brings along
from pages import HOME, ROOT, SITE  # noqa: E402

project = "bilevel-sym"
author = "The bilevel-sym developers"
copyright = f"2026, {author}"  # noqa: A001
(release,) = re.findall(r'^__version__ = "(.+)"', (ROOT / "bilevel_sym/__init__.py").read_text(encoding="utf-8"), re.M)

extensions = ["myst_nb", "sphinx_copybutton", "mathml"]
html_math_renderer = "mathml"
nitpicky = True

nb_execution_mode = "off"  # the notebooks are stored as they ran, and a test runs them anew
myst_heading_anchors = 6
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_block"]
myst_dmath_double_inline = True  # $$...$$ within a paragraph, as notebooks have it
myst_fence_as_directive = ["math"]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_remove_prompts = True
copybutton_line_continuation_character = "\\"

# our own addresses are compared with files by `pages.py`; a notebook's doors are made of them
linkcheck_ignore = [*map(re.escape, (HOME, SITE)), r"https://(mybinder\.org|colab\.research\.google\.com|raw\.)"]
linkcheck_timeout = 20

html_theme = "pydata_sphinx_theme"
html_title = f"{project} {release}"
html_baseurl = SITE
html_static_path = [str(HERE / "static"), str(Path(ziamath.__file__).parent / "fonts")]
html_favicon = str(HERE / "static" / "favicon.svg")
html_extra_path = [str(HERE / "playground")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": project},
    "icon_links": [{"name": "GitHub", "url": HOME, "icon": "fa-brands fa-github"}],
    "external_links": [{"name": "Playground", "url": f"{SITE}playground.html"}],
    "navbar_align": "left",
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
