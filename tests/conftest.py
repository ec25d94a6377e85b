"""Shared fixtures: golden tables that real Hudi wrote, unpacked once per session."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parent / "golden" / "fixtures"
GOLDEN_NAMES = sorted(path.stem for path in FIXTURES.glob("*.zip"))


def expected(name: str) -> dict[str, Any]:
    """What real Hudi read back from the golden table."""
    loaded: dict[str, Any] = json.loads((FIXTURES / f"{name}.expected.json").read_text())
    return loaded


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Path of an unpacked golden table; shared by the session, so tests must not change it."""
    root = tmp_path_factory.mktemp("golden")

    def unpack(name: str) -> Path:
        target = root / name
        if not target.exists():
            with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
                archive.extractall(root)
        return target

    return unpack


@pytest.fixture
def golden_copy(golden: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A private copy of a golden table that a test may damage."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(golden(name), tmp_path / name))

    return copy
