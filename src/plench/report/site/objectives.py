"""The objectives of our own algorithms, read from their docstrings without importing them (nor torch)."""

import ast
from functools import cache
from importlib.resources import files


@cache
def read_objectives() -> dict[str, str]:
    """Return the paragraph "Objective: …" of every class that `@register("NAME", …)` declares, by name."""
    found: dict[str, str] = {}
    for entry in files("plench.algorithms").iterdir():
        if entry.name.endswith(".py"):
            tree = ast.parse(entry.read_text(encoding="utf-8"))
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    name, objective = _registered_name(node), _objective(ast.get_docstring(node) or "")
                    if name and objective:
                        found[name] = objective
    return found


def _registered_name(node: ast.ClassDef) -> str | None:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "register":
            first = decorator.args[0] if decorator.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                return first.value
    return None


def _objective(docstring: str) -> str:
    for paragraph in docstring.split("\n\n"):
        if paragraph.startswith("Objective:"):
            return " ".join(paragraph.removeprefix("Objective:").split())
    return ""
