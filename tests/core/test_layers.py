"""Imports point one way, as docs/modules.md says, and no modules import each other in a circle.

Imports inside functions count like those at the top. Those under `if TYPE_CHECKING` count for the layers, but
not for circles: annotations may name each other.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

PACKAGE = ROOT / "src" / "plench"
# From bottom to top: a package or module imports only from lines above its own, or from itself.
LAYERS = (
    "errors",
    "text",
    "files",
    "settings registry",
    "hparams",
    "criteria networks data",
    "callbacks",
    "algorithms",
    "batch",
    "runs",
    "model_file",
    "training",
    "report sweeps estimator",
    "api",
    "contract",
    "__init__",
    "bench",
    "cli",
    "__main__ train sweep collect_results",
)
# The one import against the order: `plench.Dataset.load` is a short cut to the sources.
SHORT_CUT = ("plench.data.dataset", "plench.data.sources")


def list_imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the modules of plench that a file imports, and whether type checkers alone do."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    for_types = {
        node
        for block in blocks
        if isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [find_module(f"{node.module}.{alias.name}") for alias in node.names]
        else:
            continue
        yield from ((name, node in for_types) for name in names if name.split(".")[0] == "plench")


def find_module(name: str) -> str:
    """Return the module that a dotted name is, or is an attribute of."""
    path = PACKAGE.parent / name.replace(".", "/")
    return name if path.is_dir() or path.with_suffix(".py").exists() else name.rpartition(".")[0]


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit_of(module: str) -> str:
    """Return the part of plench that a module belongs to."""
    return [*module.split("."), "__init__"][1]


MODULES = {name_of(path): list(list_imports(path)) for path in sorted(PACKAGE.rglob("*.py"))}


def test_imports_point_one_way() -> None:
    rank = {unit: number for number, layer in enumerate(LAYERS) for unit in layer.split()}
    units = (
        (module, name, unit_of(module), unit_of(name)) for module in MODULES for name, _ in MODULES[module]
    )
    assert [(module, name) for module, name, a, b in units if a != b and rank[a] <= rank[b]] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    edges = {
        module: {name for name, for_types in imports if name in MODULES and not for_types} - {module}
        for module, imports in MODULES.items()
    }
    edges[SHORT_CUT[0]].remove(SHORT_CUT[1])
    assert [module for module in edges if module in list_reached(module, edges)] == []


def list_reached(start: str, edges: dict[str, set[str]]) -> set[str]:
    """Return the modules that importing a module leads to."""
    found: set[str] = set()
    ahead = [start]
    while ahead:
        new = edges[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def test_reading_results_imports_no_torch() -> None:
    parts = ("criteria", "registry", "report", "runs", "settings", "text")
    modules = [name for name in MODULES if unit_of(name) in parts and ".figures." not in name]
    modules += ["plench.sweeps.engines", "plench.data.sources"]
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
    code += "\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, *modules], check=False).returncode == 0
