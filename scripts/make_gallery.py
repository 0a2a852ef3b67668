"""Execute the examples of the gallery and write docs/gallery: a page, a picture and a thumbnail for each.

    python scripts/make_gallery.py [NAME ...]

An example is a script of examples/ that takes a folder and saves NAME.png in it. Its docstring begins the
page: the first line is the title. A comment after `# %%` is text, what follows is code. The text that begins
with `Picture:` is the picture's alternative text.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
EXAMPLES, PAGES = ROOT / "examples", ROOT / "docs" / "gallery"
# In the order of the gallery.
GALLERY = (
    "own_table",
    "text_annotators",
    "images_encoder",
    "label_studio",
    "prediction_sets",
    "audit",
    "relabel",
    "own_algorithm",
    "learning_curves",
    "two_methods",
    "ray_sweep",
    "read_study",
)
LARGEST, COLOURS, THUMBNAIL = 60_000, 128, (240, 150)  # bytes; pixels


def split_cells(source: str) -> list[tuple[str, str]]:
    """Return the cells of a script as pairs of text and code, the docstring's cell first."""
    docstring = ast.get_docstring(ast.parse(source)) or ""
    first, *others = re.split(r"^# %%\n", source, flags=re.MULTILINE)
    cells = [(docstring, first.split('"""', 2)[2].strip("\n"))]
    for cell in others:
        lines = cell.splitlines()
        n = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
        text = "\n".join(line.removeprefix("#").strip() for line in lines[:n])
        cells.append((text, "\n".join(lines[n:]).strip("\n")))
    return cells


def title_of(source: str) -> tuple[str, str]:
    """Return the title of an example, and the paragraph below it in one line."""
    title, _, rest = split_cells(source)[0][0].partition("\n")
    return title.rstrip("."), " ".join(rest.strip().partition("\n\n")[0].split())


def alternative_text(source: str) -> str:
    """Return the alternative text of the picture, in one line."""
    texts = [text for text, _ in split_cells(source) if text.startswith("Picture: ")]
    if len(texts) != 1:
        raise ValueError(f"expected one comment that begins with 'Picture: ', found {len(texts)}")
    text = " ".join(texts[0].removeprefix("Picture: ").split())
    return text[0].upper() + text[1:]


def write_page(name: str, source: str, output: str) -> str:
    """Return the page of an example."""
    title, _ = title_of(source)
    cells = split_cells(source)
    lines = [f"# {title}", "", cells[0][0].partition("\n")[2].strip(), ""]
    lines += [f"![{alternative_text(source)}]({name}.png)", "", "## Script", ""]
    lines += [f"[The whole script](../../examples/{name}.py):", ""]
    for number, (text, code) in enumerate(cells):
        if number and not text.startswith("Picture: "):
            lines += [text, ""]
        elif number:
            lines += ["The picture:", ""]
        lines += ["```python", code, "```", ""]
    lines += ["## Output", "", "```text", output.rstrip(), "```", ""]
    return "\n".join(lines)


def write_index() -> str:
    """Return the page that lists the gallery, with thumbnails."""
    lines = ["# Gallery", "", "Each example is a script that needs no download and runs in under a minute."]
    lines += ["Pages, output and pictures are written by `python scripts/make_gallery.py`.", ""]
    for name in GALLERY:
        title, summary = title_of((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
        picture = f"[![{title}](thumbnails/{name}.png)]({name}.md)"
        lines += [f"## [{title}]({name}.md)", "", picture, "", summary, ""]
    return "\n".join(lines)


def run_example(name: str, folder: Path) -> str:
    """Run an example, with its files in a folder; return what it prints."""
    paths = [str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONPATH": os.pathsep.join(paths)}
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), name],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment, "PLENCH_CACHE": str(folder / "cache")},
        check=False,
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{name} failed:\n{ran.stderr}")
    return ran.stdout


def main() -> int:
    """Write the pages that the command line names, or all."""
    (PAGES / "thumbnails").mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or GALLERY:
        source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            output = run_example(name, Path(folder))
            with Image.open(Path(folder) / name / f"{name}.png") as image:
                picture = image.convert("RGB")
        path = PAGES / f"{name}.png"
        picture.quantize(COLOURS).save(path, optimize=True)
        if path.stat().st_size > LARGEST:
            raise RuntimeError(f"{path.name} has {path.stat().st_size:,} bytes, not {LARGEST:,}")
        picture.thumbnail(THUMBNAIL)
        picture.save(PAGES / "thumbnails" / path.name, optimize=True)
        (PAGES / f"{name}.md").write_text(write_page(name, source, output), encoding="utf-8")
        print(PAGES / f"{name}.md")
    (PAGES / "index.md").write_text(write_index(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
