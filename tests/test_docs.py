"""Pages made from the source are current, and what README and docs point to is there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = "<!-- modules: "
"""Where the derived part of docs/architecture.md begins."""


def test_derived_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_without_a_sentence_is_refused(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("module_tables", ROOT / "docs" / "module_tables.py")
    assert spec and spec.loader
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text('"""A toy."""\n')
    (package / "good.py").write_text('"""Reads `a | b`.\n\nAnd more.\n"""\n')
    assert "| `good.py` | Reads `a \\| b`. |" in tables.tables(package, [])
    for silent in ("x = 1\n", '"""A sentence that goes\non."""\n'):
        (package / "silent.py").write_text(silent)
        with pytest.raises(SystemExit, match=r"silent\.py"):
            tables.tables(package, [])


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not broken


MODULE = re.compile(r"(?<![\w/.*])(?:[\w-]+/)*\w+\.py\b")
NAME = re.compile(r"\b(?:[a-z]+_[a-z_]+|[A-Z][a-z]+[A-Z]\w+)\b")
"""A word that can only be a name of the code: it has an underscore, or a capital inside."""


def source_of(module: str) -> Path | None:
    return next((path for path in (ROOT / "lakebed" / module, ROOT / module) if path.is_file()), None)


def test_the_map_names_modules_that_exist() -> None:
    gone = [
        f"{page}: {module}"
        for page in ("docs/architecture.md", "CONTRIBUTING.md")
        for module in MODULE.findall((ROOT / page).read_text().split(MODULES)[0])
        if not module.startswith("tests/") and source_of(module) is None
    ]
    assert not gone


def test_the_paths_on_the_map_name_what_their_modules_define() -> None:
    """In a drawing of a path the words left of a module are functions and classes of that module."""
    page = (ROOT / "docs" / "architecture.md").read_text().split(MODULES)[0]
    lines = [line for block in re.findall(r"```\n(.*?)```", page, re.DOTALL)[1:] for line in block.splitlines()]
    named = [
        (name, module[0])
        for line in lines
        if (module := MODULE.search(line))
        for name in NAME.findall(line[: module.start()])
    ]
    assert len(named) > 20
    sources = {module: path.read_text() for _, module in named if (path := source_of(module))}
    assert not [
        f"{name} is not in {module}" for name, module in named if not re.search(rf"\b{name}\b", sources[module])
    ]


def test_every_make_target_has_a_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    silent = [
        name
        for name in phony.group(1).split()
        if name != "java" and f"\n{name}:" in makefile and not re.search(rf"^{name}:.*## ", makefile, re.MULTILINE)
    ]
    assert silent in ([], ["types"])
