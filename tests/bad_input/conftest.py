"""What every test of bad input asks for: the right error, with a place and a way out, and a table left as it was."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import LakebedError

Rows = list[dict[str, Any]]


def state_of(root: Path) -> dict[str, Any]:
    """Every name below a folder with what it is: content, link target, or folder."""
    found: dict[str, Any] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder) / name
            if path.is_symlink():
                found[str(path)] = str(path.readlink())
            elif path.is_file():
                found[str(path)] = (hashlib.blake2b(path.read_bytes()).digest(), path.stat().st_mtime_ns)
            else:
                found[str(path)] = None
    return found


@contextmanager
def refused(
    kind: type[LakebedError], match: str, *, file: str | None = None, at: Path | None = None
) -> Iterator[pytest.ExceptionInfo[LakebedError]]:
    """The block must end in this kind of error, naming the file, with a next step, and must not write below `at`."""
    before = state_of(at) if at is not None and at.is_dir() else None
    with pytest.raises(kind, match=match) as caught:
        yield caught
    error = caught.value
    assert type(error) is kind
    if file is not None:
        assert error.file is not None and error.file.startswith(file), error.file
        assert file in str(error)
    if kind in (lakebed.CorruptTable, lakebed.UnsupportedFormat):  # the others say it in their text
        assert error.hint, str(error)
    if before is not None and at is not None:
        assert state_of(at) == before, "reading changed the table"


def rows_of(root: Path, **scan: Any) -> Rows:
    """All rows, in an order of their own."""
    return sorted(lakebed.open(root).scan(**scan).to_arrow().to_pylist(), key=repr)


@pytest.fixture(scope="session")
def right_rows(golden: Callable[[str], Path]) -> Callable[[str], Rows]:
    """The rows of an undamaged golden table."""
    known: dict[str, Rows] = {}

    def rows(name: str) -> Rows:
        if name not in known:
            known[name] = rows_of(golden(name))
        return known[name]

    return rows
