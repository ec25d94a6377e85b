"""The napkin in docs/architecture.md, enforced: a module imports from lower rows only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "lakebed"
DOORS = ("table.py", "open_table.py", "read/scan.py", "services/services.py", "cli/demo.py", "cli/engine.py")
LAZY_IMPORTS = {(door, "lakebed.spark") for door in DOORS}
"""Doors that reach for Spark only when they are handed a session, a frame of it or a master's name, or find that there
can be one."""


def rows_of_the_drawing() -> dict[str, int]:
    """Row of every first-level module, read from the drawing itself so that picture and code cannot disagree."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    drawing = re.search(r"```\n(\d+ tests.*?)```", text, re.DOTALL)
    assert drawing, "docs/architecture.md lost its drawing"
    rows: dict[str, int] = {}
    for line in drawing.group(1).splitlines():
        found = re.match(r"\s*(\d+)\s+(.*)", line)
        if not found:
            continue
        for name in re.findall(r"([a-z_]+)(?:/|\.py)", found.group(2)):
            rows[name] = int(found.group(1))
    return rows


ROWS = rows_of_the_drawing()


def module_parts(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def first_party_imports(tree: ast.AST) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lakebed":
            if node.module == "lakebed":
                found.extend((node.lineno, f"lakebed.{alias.name}") for alias in node.names)
            else:
                found.append((node.lineno, node.module))
        elif isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "lakebed")
    return found


def sources() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


def test_every_module_has_a_row() -> None:
    unknown = {module_parts(path) for path in sources()} - set(ROWS)
    assert not unknown, f"not in the drawing of docs/architecture.md: {sorted(unknown)}"


def test_imports_go_down_only() -> None:
    wrong = []
    for path in sources():
        here = module_parts(path)
        for line, module in first_party_imports(ast.parse(path.read_text())):
            there = module.split(".")[1]
            if there == here:
                continue
            if (path.relative_to(PACKAGE).as_posix(), ".".join(module.split(".")[:2])) in LAZY_IMPORTS:
                continue
            if ROWS.get(there, 99) >= ROWS[here]:
                wrong.append(
                    f"{path.relative_to(ROOT)}:{line} (row {ROWS[here]}) imports {module} (row {ROWS.get(there)})"
                )
    assert not wrong, "\n".join(wrong)


def test_no_relative_and_no_hidden_imports() -> None:
    hidden = []
    for path in sources():
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for line, module in first_party_imports(function):
                door = (path.relative_to(PACKAGE).as_posix(), ".".join(module.split(".")[:2]))
                if door not in LAZY_IMPORTS:
                    hidden.append(f"{path.relative_to(ROOT)}:{line} imports {module} inside a function")
        hidden += [
            f"{path.relative_to(ROOT)}:{node.lineno} relative import"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.level
        ]
    assert not hidden, "\n".join(hidden)


def test_only_the_engine_imports_pyspark() -> None:
    guilty = [
        str(path.relative_to(ROOT))
        for path in sources()
        if module_parts(path) != "spark" and re.search(r"^\s*(import|from) pyspark", path.read_text(), re.MULTILINE)
    ]
    assert not guilty


def test_only_the_clock_knows_the_time() -> None:
    wall_clock = re.compile(r"time\.time\(|datetime\.now\(|datetime\.utcnow\(|time\.time_ns\(|date\.today\(")
    guilty = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path != PACKAGE / "timeline" / "clock.py" and wall_clock.search(path.read_text())
    ]
    assert not guilty


CONCRETE = {
    "storage": {"LocalStorage", "MemoryStorage", "ObjectStorage"},
    "runner": {"SerialRunner", "LocalRunner"},
    "spark": {"SparkRunner", "KnownFiles"},
    "index": {"BucketIndex", "ConsistentBucketIndex", "KeyLookupIndex", "RecordIndex"},
    "datafile": {"ParquetSource", "OrcSource"},
    "view": {"StorageLister"},
    "metadata": {"MetadataTable"},
    "txn": {"StorageLock", "HudiFileLock", "InProcessLock", "FileLock"},
}
"""Classes that a plugged-in one may stand in for, by the package that may know which one it has."""


def names_in(node: ast.AST) -> set[str]:
    inner = [one for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)]
    return {one.id if isinstance(one, ast.Name) else one.attr for one in inner}


def types_asked_for(tree: ast.AST) -> list[tuple[int, set[str]]]:
    """The classes that a module tells values apart by: in `isinstance`, in `type(x) is ...`, in class patterns."""
    found = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            found.append((node.lineno, names_in(node.args[1])))
        elif isinstance(node, ast.Compare) and "type" in names_in(node.left):
            found.append((node.lineno, set().union(*(names_in(one) for one in node.comparators))))
        elif isinstance(node, ast.MatchClass):
            found.append((node.cls.lineno, names_in(node.cls)))
    return found


def test_the_concrete_classes_are_those_of_the_package() -> None:
    for package, names in CONCRETE.items():
        files = (
            [PACKAGE / f"{package}.py"] if (PACKAGE / f"{package}.py").exists() else (PACKAGE / package).rglob("*.py")
        )
        text = "\n".join(path.read_text() for path in files)
        assert {name for name in names if not re.search(rf"^class {name}\b", text, re.MULTILINE)} == set(), package


def test_values_tell_what_they_can_do_and_nobody_asks_for_their_type() -> None:
    example = "match x:\n    case LocalStorage(): type(x) is OrcSource or isinstance(x, (a.FileLock, int))\n"
    asked = set().union(*(names for _, names in types_asked_for(ast.parse(example))))
    assert asked >= {"LocalStorage", "OrcSource", "FileLock"}
    guilty = []
    for path in sources():
        elsewhere = set().union(*(names for package, names in CONCRETE.items() if package != module_parts(path)))
        for line, names in types_asked_for(ast.parse(path.read_text())):
            guilty += [f"{path.relative_to(ROOT)}:{line} asks for {name}" for name in sorted(names & elsewhere)]
    assert not guilty, "\n".join(guilty)


def test_only_the_storages_know_the_prefixes_of_their_urls() -> None:
    guilty = [
        f"{path.relative_to(ROOT)}:{node.lineno} has {node.value!r}"
        for path in sources()
        if module_parts(path) != "storage"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in ("file://", "memory://", b"file://", b"memory://")
    ]
    assert not guilty, "\n".join(guilty)


def test_the_lines_of_registries_name_modules_of_their_own_package() -> None:
    """What a base file format reads is a matter of data files, and its name one of settings and file names."""
    allowed = {("config", "datafile")}
    found = {
        (module_parts(path), line.split(".")[1])
        for path in sources()
        for line in re.findall(r'"(lakebed\.[\w.]+:\w+)"', path.read_text())
    }
    assert {pair for pair in found if pair[0] != pair[1]} == allowed


def test_one_function_takes_the_name_off_a_path() -> None:
    by_hand = re.compile(r"""r(partition|split)\(["']/["'](, 1)?\)\[(0|2|-1)\]|os\.path\.basename""")
    guilty = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path != PACKAGE / "paths.py" and by_hand.search(path.read_text())
    ]
    assert not guilty
