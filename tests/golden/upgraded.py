"""A table that real Hudi made as version 6 and upgraded to 9, with what Hudi read of it as of every write.

Three writes, the compaction of the upgrade, and a fourth write; the logs of the second and third bear the begin of the
first, whose base file they belong to.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import lakebed

COLUMNS = ["id", "ts", "p", "v"]
WRITES = ("20261116035721903", "20261116035735966", "20261116035743784", "20261116035755376")
COMPLETED = ("20261116035734235", "20261116035742527", "20261116035746435", "20261116035757268")
COMPACTION = "20261116035747771"


def unpack_upgraded(folder: Path) -> Path:
    """A copy of the table."""
    with zipfile.ZipFile(Path(__file__).with_name("upgraded_from_6.zip")) as archive:
        archive.extractall(folder)
    return folder / "upgraded_from_6"


def hudis(path: Path, instant: str) -> list[list[Any]]:
    """What Hudi read as of an instant."""
    found: list[list[Any]] = json.loads((path.parent / "as_of.json").read_text())[instant]
    return sorted(found)


def ours(path: Path, **more: Any) -> list[list[Any]]:
    rows = lakebed.open(path).scan(columns=COLUMNS, **more).to_arrow().to_pylist()
    return sorted([row[name] for name in COLUMNS] for row in rows)


def shared_logs(path: Path) -> list[Path]:
    """The logs that bear the begin of the first write, in their order."""
    return sorted((path / "p0").glob(f".*_{WRITES[0]}.log.*_*[0-9]"))
