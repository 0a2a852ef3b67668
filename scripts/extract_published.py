"""Extract the paper's four PLCIFAR10 tables from its LaTeX source into the package's `published.json`.

    python scripts/extract_published.py ../shared/paper.tex

Every number in the file comes from here; `tests/report/test_compare_paper.py` compares it with the source,
cell by cell.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src" / "plench" / "report" / "published.json"
CRITERIA = ("CR", "AA", "OA", "OA_ES")
CAPTION = re.compile(r"\\caption\{[^{}]* on PLCIFAR10-(\w+) with (\w+),.*?\}\\label\{(\w+)\}", re.DOTALL)
ROW = re.compile(
    r"^(?P<name>[\w+-]+)\s*&\s*(?P<venue>[^&~]+)~\\citep\{(?P<reference>\w+)\}(?P<cells>(?:\s*&[^&]*){4})\\\\"
)
CELL = re.compile(r"(?:\\bf\s+)?(?P<mean>\d+\.\d\d)\$\\pm\$(?P<error>\d+\.\d\d)")


def extract_tables(source: str) -> list[dict[str, Any]]:
    """Return the tables in the paper's order, with means and errors in percent as printed."""
    tables = []
    for environment in re.findall(r"\\begin\{table\}.*?\\end\{table\}", source, re.DOTALL):
        caption = CAPTION.search(environment)
        if caption is None:
            continue
        version, model, label = caption.groups()
        rows = [extract_row(match) for line in environment.split("\n") if (match := ROW.match(line.strip()))]
        tables.append({"dataset": f"PLCIFAR10_{version}", "model": model, "label": label, "rows": rows})
    return tables


def extract_row(match: re.Match[str]) -> dict[str, Any]:
    """Return one row: our name of the algorithm, venue, reference, and [mean, error] by criterion."""
    cells = [CELL.fullmatch(text.strip()) for text in match["cells"].split("&")[1:]]
    if len(cells) != len(CRITERIA) or None in cells:
        raise ValueError(f"cannot read the row {match[0]!r}")
    figures = {
        c: [float(cell["mean"]), float(cell["error"])]
        for c, cell in zip(CRITERIA, cells, strict=True)
        if cell
    }
    name = match["name"].replace("-", "_").replace("+", "_plus")
    return {"algorithm": name, "venue": match["venue"].strip(), "reference": match["reference"], **figures}


def main() -> None:
    """Read the paper and write the package's file."""
    tables = extract_tables(Path(sys.argv[1]).read_text(encoding="utf-8"))
    lines = []
    for table in tables:
        head = {key: value for key, value in table.items() if key != "rows"}
        rows = ",\n".join("   " + json.dumps(row) for row in table["rows"])
        lines.append(f'  {json.dumps(head)[:-1]}, "rows": [\n{rows}\n  ]}}')
    TARGET.write_text('{"tables": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
    print(
        f"{len(tables)} tables, {sum(len(table['rows']) for table in tables)} rows written to {TARGET.name}"
    )


if __name__ == "__main__":
    main()
