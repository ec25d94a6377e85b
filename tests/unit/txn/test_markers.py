from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.format.names import MarkerType
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.txn.markers import Marker, begin_of, create_marker, delete_markers, list_markers

BEGIN = "20260101000000000"


@pytest.mark.parametrize("name", ["cow_failed_pending_v9", "mor_failed_pending_v9", "cow_failed_tlmarkers_v9"])
def test_markers_of_real_failed_writes_name_their_files(golden: Callable[[str], Path], name: str) -> None:
    storage = LocalStorage(golden(name))
    [requested_time] = [folder.rpartition("/")[2] for folder in storage.list_folders(".hoodie/.temp")]
    markers = list_markers(storage, requested_time)
    found = {
        info.path
        for partition in ("p0", "p1")
        for info in storage.list(partition)
        if begin_of(info.name) == requested_time
    }
    assert {marker.path for marker in markers} == found
    assert len(found) >= 2
    kind = MarkerType.CREATE if name.startswith("mor") else MarkerType.MERGE
    assert {marker.io_type for marker in markers} == {kind}


def test_markers_are_files_beside_the_table_and_go_together() -> None:
    storage = MemoryStorage()
    data = f"f-0_0-0-0_{BEGIN}.parquet"
    path = create_marker(storage, BEGIN, "a=1/b=2", data, MarkerType.MERGE)
    assert path == f".hoodie/.temp/{BEGIN}/a=1/b=2/{data}.marker.MERGE"
    assert storage.read(path) == b""
    create_marker(storage, BEGIN, "", f".f-0_{BEGIN}.log.1_0-0-0")
    create_marker(storage, "20260101000000001", "", data)
    assert list_markers(storage, BEGIN) == (
        Marker("", f".f-0_{BEGIN}.log.1_0-0-0", MarkerType.CREATE),
        Marker("a=1/b=2", data, MarkerType.MERGE),
    )
    delete_markers(storage, BEGIN)
    assert list_markers(storage, BEGIN) == ()
    assert len(list_markers(storage, "20260101000000001")) == 1


@given(st.binary(max_size=200))
def test_a_marker_file_of_any_bytes_names_only_files_of_the_table(junk: bytes) -> None:
    storage = MemoryStorage()
    whole = f"p1/f-0_0-0-0_{BEGIN}.parquet.marker.CREATE\n".encode()
    storage.put(f".hoodie/.temp/{BEGIN}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.put(f".hoodie/.temp/{BEGIN}/MARKERS0", whole + junk)
    storage.put(f".hoodie/.temp/{BEGIN}/MARKERS7", b"../../x.parquet.marker.CREATE\n/etc/y.marker.MERGE\np0/z.par")
    markers = list_markers(storage, BEGIN)
    assert Marker("p1", f"f-0_0-0-0_{BEGIN}.parquet", MarkerType.CREATE) in markers
    assert all(".." not in marker.path.split("/") and not marker.path.startswith("/") for marker in markers)
