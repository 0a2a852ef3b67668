"""Escaping names from files for a terminal and for each format."""

import re

from plench.text import clean_text

LONGEST_NAME = 48

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": r"$-$",
    "…": r"\dots{}",
    "–": "--",
    "√": r"$\sqrt{}$",
}


def clean(name: str, longest: int | None = LONGEST_NAME) -> str:
    """Replace control characters and direction marks, and cut what is longer than a name should be."""
    kept = clean_text(name, keep="")
    return kept if longest is None or len(kept) <= longest else kept[: longest - 1] + "…"


def escape_latex(text: str) -> str:
    """Escape what LaTeX would read as a command."""
    return "".join(_LATEX.get(c, c) for c in text)


def escape_markdown(text: str) -> str:
    """Escape what Markdown or HTML would read as markup, and the bar that ends a cell."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", safe)


def guard_formula(text: str) -> str:
    """Put an apostrophe in front of a name that a spreadsheet would run as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
