"""Settings of the documentation's site, which `make docs` builds (scripts/make_docs.py)."""

from plench.version import __version__

project = "plench"
author = "The plench authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
# Headings can be linked to by their words, as on the pages where the Markdown is read as it is.
myst_heading_anchors = 4
html_theme = "furo"  # light and dark, without a request to another host
html_title = f"plench {__version__}"
html_copy_source = False
html_show_sourcelink = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
suppress_warnings = ["misc.highlighting_failure"]
