"""The tables of modules in docs/architecture.md: a table per package, a sentence per module, from the docstrings.

A sentence is the first line of the module's docstring, so it must stand on its own. Packages come in the order of the
drawing at the top of the page, from the top row down.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

BEGIN, END = "<!-- modules: made by `make docs` -->", "<!-- end of modules -->"
DRAWING = re.compile(r"```\n(\d+ tests.*?)```", re.DOTALL)


def filled(page: str, package: Path) -> str:
    """The page with its tables of modules written anew."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{tables(package, rows_of_the_drawing(page))}\n{END}{after}"


def rows_of_the_drawing(page: str) -> list[str]:
    """First-level packages and modules, from the top row of the drawing to the bottom."""
    drawing = DRAWING.search(page)
    if drawing is None:
        raise SystemExit("docs/architecture.md lost its drawing")
    lines = (re.sub(r"^\s*\d+", "", line) for line in drawing[1].splitlines())
    return [name for line in lines for name in re.findall(r"([a-z_]+)(?:/|\.py)", line)]


def tables(package: Path, order: list[str]) -> str:
    """A table for the modules of the package itself, then one for each package in it, at any depth."""
    place = {name: number for number, name in enumerate(order)}
    folders: dict[Path, list[Path]] = {}
    for path in sorted(package.rglob("*.py")):
        folders.setdefault(path.parent, []).append(path)

    def by_row(folder: Path) -> tuple[int, str]:
        parts = folder.relative_to(package).parts
        return (place.get(parts[0], len(place)) if parts else -1, folder.as_posix())

    out = []
    for folder in sorted(folders, key=by_row):
        name = folder.relative_to(package.parent).as_posix()
        modules = [path for path in folders[folder] if path.name != "__init__.py"]
        out += [f"### `{name}/`", "", sentence(folder / "__init__.py"), "", "| module | |", "|---|---|"]
        out += [f"| `{path.name}` | {cell(sentence(path))} |" for path in modules]
        out.append("")
    return "\n".join(out)


def sentence(path: Path) -> str:
    """The first line of a module's docstring, which is a whole sentence."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = text.partition("\n")[0]
    if not first.endswith((".", ".)")):
        raise SystemExit(f"{path}: the first line of the docstring has to be a sentence that ends with a full stop")
    return first


def cell(text: str) -> str:
    """Text as the cell of a table, in which a bar would end the cell."""
    return text.replace("|", "\\|")
