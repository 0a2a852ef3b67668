"""Settings of the documentation's site, which `make docs` builds (scripts/make_docs.py)."""

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml

from plench.settings import __version__

project = "plench"
author = "The plench authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
# Headings can be linked to by their words, as on the pages where the Markdown is read as it is.
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"  # browsers show it by themselves, without a script from another host
html_theme = "furo"  # light and dark, without a request to another host
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = f"plench {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_search_summary = False  # browsers refuse to fetch pages of a folder for it
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types
# scikit-learn adds the methods of its metadata routing, whose texts refer to its own pages.
autodoc_default_options = {
    "members": True,
    "exclude-members": "get_metadata_routing, set_fit_request, set_score_request",
}
suppress_warnings = ["misc.highlighting_failure"]


def render_math(tex: str, *, block: bool) -> str:
    """Return a formula as MathML; what cannot be turned is shown as it was written."""
    tex = re.sub(r"\\[bB]ig(?![a-z])", "", tex)  # sizes of brackets, which the converter does not know
    tex = tex.replace(r"\dots", r"\ldots").replace(r"\texttt", r"\mathtt")
    try:
        return str(latex2mathml.tex2mathml(tex, as_block=block))
    except Exception:
        return f"<code>{escape(tex)}</code>"


def visit_math(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(render_math(node.astext(), block=False))
    raise nodes.SkipNode


def visit_displaymath(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    writer.body.append(f"<div class='math' tabindex='0'>{render_math(node.astext(), block=True)}</div>")
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Tell Sphinx how formulas are written."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
