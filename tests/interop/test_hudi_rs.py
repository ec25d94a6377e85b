"""hudi-rs reads the golden tables too: a second opinion that shares no code with real Hudi's Java."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed

from .client import peer_python
from .differences import HUDI_RS_LIMITS
from .rows import Answer, from_arrow, row_difference, schema_difference

pytestmark = pytest.mark.interop

GOLDEN_NAMES = sorted(path.stem for path in (Path(__file__).parents[1] / "golden" / "fixtures").glob("*.zip"))


@pytest.fixture(scope="session")
def hudi_rs(golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Answer | str]:
    """What hudi-rs makes of a golden table: its rows, or its error. All tables are read by one process."""
    folder = tmp_path_factory.mktemp("hudi-rs")
    requests = [{"path": str(golden(name)), "out": str(folder / f"{name}.arrow")} for name in GOLDEN_NAMES]
    script = Path(__file__).with_name("hudi_rs.py")
    done = subprocess.run(
        [str(peer_python()), str(script)],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    errors = {line["path"]: line["error"] for line in map(json.loads, done.stdout.splitlines())}

    def answer(name: str) -> Answer | str:
        path = str(golden(name))
        if path not in errors:
            return f"hudi-rs ended before it answered: {done.stderr[-1000:]}"
        if errors[path] is not None:
            return str(errors[path])
        with pa.OSFile(str(folder / f"{name}.arrow")) as source:
            return from_arrow(pa.ipc.open_file(source).read_all())

    return answer


def complaint(ours: Answer, theirs: Answer | str) -> str:
    """How hudi-rs differs from us; empty when it does not."""
    if isinstance(theirs, str):
        return theirs
    if not theirs.columns:
        theirs = Answer(ours.columns, ours.types, ())
    return "\n".join(filter(None, (schema_difference(ours, theirs), row_difference(ours, theirs))))


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_hudi_rs_reads_the_same_rows(
    name: str, golden: Callable[[str], Path], hudi_rs: Callable[[str], Answer | str]
) -> None:
    ours = from_arrow(lakebed.open(str(golden(name))).scan().to_arrow())
    found = complaint(ours, hudi_rs(name))
    limit = HUDI_RS_LIMITS.get(name)
    if limit is None:
        assert found == ""
    else:
        assert limit.shows in found, f"hudi-rs no longer has this limit, take it off the list: {limit.reason}. {found}"


def test_every_limit_names_a_golden_table() -> None:
    assert set(HUDI_RS_LIMITS) <= set(GOLDEN_NAMES)
