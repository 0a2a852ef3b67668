"""A taxonomy: labels known only to their genus become the set of the species below it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from plench.data.raw_table import RawTable, shorten
from plench.data.table_files import read_table_file
from plench.errors import DataError

NODE_NAMES = ("node", "name", "child")
PARENT_NAMES = ("parent",)


class Taxonomy:
    """Nodes and their parents. Leaves, nodes that are nobody's parent, are the classes."""

    def __init__(self, parents: Mapping[str, str | None], name: str = "the taxonomy") -> None:
        self.name = name
        children: dict[str, list[str]] = {}
        for node, parent in parents.items():
            children.setdefault(node, [])
            if parent is not None:
                children.setdefault(parent, []).append(node)
        self.classes = tuple(sorted(node for node, below in children.items() if not below))
        self.leaves: dict[str, tuple[str, ...]] = {}
        self._collect(children)
        if len(self.classes) < 2:
            raise DataError(f"{name} has {len(self.classes)} leaves; at least two classes are needed")

    def _collect(self, children: Mapping[str, list[str]]) -> None:
        """Find the leaves below each node, from the bottom up; what is never reached hangs in a circle."""
        parents: dict[str, list[str]] = {}
        for node, below in children.items():
            for child in below:
                parents.setdefault(child, []).append(node)
        found: dict[str, set[str]] = {leaf: {leaf} for leaf in self.classes}
        waiting = {node: len(below) for node, below in children.items()}
        ready = list(self.classes)
        while ready:
            node = ready.pop()
            for parent in parents.get(node, ()):
                found.setdefault(parent, set()).update(found[node])
                waiting[parent] -= 1
                if not waiting[parent]:
                    ready.append(parent)
        for node, count in waiting.items():
            if count:
                raise DataError(
                    f"{self.name}: {shorten(node)} is an ancestor of itself, or above one that is"
                )
        self.leaves = {node: tuple(sorted(below)) for node, below in found.items()}


def read_taxonomy(path: str | Path) -> Taxonomy:
    """Read a table with the columns `node` and `parent`; a root's parent is empty, or has no row."""
    return parse_taxonomy(read_table_file(path))


def parse_taxonomy(table: RawTable) -> Taxonomy:
    """Make a taxonomy of a table of nodes and parents."""
    node_column = find_one(table, NODE_NAMES)
    parent_column = find_one(table, PARENT_NAMES)
    parents: dict[str, str | None] = {}
    nodes, above = table.texts(node_column), table.texts(parent_column)
    for row, (node, parent) in enumerate(zip(nodes, above, strict=True), 1):
        if node is None:
            raise DataError(f"{table.place(row, node_column)}: the node is missing")
        if node in parents and parents[node] != parent:
            raise DataError(
                f"{table.place(row, parent_column)}: {shorten(node)} has the parent {shorten(parent)}, and "
                f"{shorten(parents[node])} further up; a node has one parent"
            )
        parents[node] = parent
    return Taxonomy(parents, table.name)


def find_one(table: RawTable, names: tuple[str, ...]) -> str:
    """Return the column called as one of `names`."""
    for column in table.columns:
        if column.lower() in names:
            return column
    raise DataError(f"{table.name} has no column {' or '.join(names)}; it has {', '.join(table.columns)}")
