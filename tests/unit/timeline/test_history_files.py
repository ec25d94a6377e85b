"""The files that count, found with as few requests as there can be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable
from lakebed.format.timeline.files import ManifestEntry, render_manifest
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import FileInfo
from lakebed.timeline.clock import comparable
from lakebed.timeline.history import History
from lakebed.timeline.history_files import HistoryFile, current_files, files_of, files_within

FOLDER = ".hoodie/timeline/history"


def name(first: int, last: int, level: int = 0) -> str:
    return f"{20260101000000000 + first}_{20260101000000000 + last}_{level}.parquet"


def publish(storage: MemoryStorage, number: int, *names: str) -> None:
    storage.put(f"{FOLDER}/manifest_{number}", render_manifest([ManifestEntry(one, 1) for one in names]))
    storage.put(f"{FOLDER}/_version_", str(number).encode())


class Watched(MemoryStorage):
    """Counts listings, and lets a writer go on right before some file is read."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0
        self.before: dict[str, list[tuple[int, str]]] = {}

    def list(self, prefix: str = "", *, recursive: bool = False) -> Iterator[FileInfo]:
        self.listings += 1
        return super().list(prefix, recursive=recursive)

    def read(self, path: str) -> bytes:
        for number, file in self.before.pop(path, []):
            self.delete([f"{FOLDER}/manifest_{number - 1}"])
            publish(self, number, file)
        return super().read(path)


def test_a_folder_in_order_is_not_listed() -> None:
    storage = Watched()
    publish(storage, 3, name(5, 9), name(0, 4, 1))
    number, files = current_files(storage, FOLDER)
    assert number == 3 and storage.listings == 0
    assert [file.file_name for file in files] == [name(0, 4, 1), name(5, 9)]
    storage.delete([f"{FOLDER}/_version_"])
    assert current_files(storage, FOLDER) == (3, files) and storage.listings == 1


def test_a_manifest_that_is_swept_up_while_we_look() -> None:
    storage = Watched()
    publish(storage, 1, name(0, 1))
    storage.before = {f"{FOLDER}/manifest_1": [(2, name(0, 2))], f"{FOLDER}/manifest_2": [(3, name(0, 3))]}
    assert current_files(storage, FOLDER) == (3, [HistoryFile(f"{FOLDER}/{name(0, 3)}", 1)])


@pytest.mark.parametrize("older", [True, False])
def test_a_manifest_that_stays_away_is_lost(older: bool) -> None:
    storage = MemoryStorage()
    if older:
        publish(storage, 6, name(0, 1))
    storage.put(f"{FOLDER}/_version_", b"7")
    with pytest.raises(CorruptTable, match="manifest is missing") as caught:
        current_files(storage, FOLDER)
    assert caught.value.file == f"{FOLDER}/manifest_7"


def test_only_files_within_the_range_need_to_be_there() -> None:
    storage = MemoryStorage()
    publish(storage, 1, name(0, 4), name(5, 9))
    history = History.load(storage)
    assert history.table(f"{20260101000000010}").num_rows == 0
    with pytest.raises(CorruptTable, match="missing") as caught:
        history.table(f"{20260101000000007}")
    assert caught.value.file == f"{FOLDER}/{name(5, 9)}"


times = st.text("0123456789", min_size=17, max_size=17) | st.text("0123456789", min_size=14, max_size=14)
bounds = st.none() | times


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(times, times).map(sorted), max_size=6), bounds, bounds)
def test_files_within_a_range(spans: list[list[str]], low: str | None, high: str | None) -> None:
    files = files_of([ManifestEntry(f"{first}_{last}_0.parquet", 7) for first, last in spans], FOLDER)
    assert [file.file_name for file in files] == sorted(f"{first}_{last}_0.parquet" for first, last in spans)
    kept = [
        file
        for file in files
        if (low is None or comparable(file.name.max_time) >= comparable(low))
        and (high is None or comparable(file.name.min_time) <= comparable(high))
    ]
    assert files_within(files, low, high) == kept


def test_a_name_that_is_none() -> None:
    with pytest.raises(CorruptTable, match="no name of a history file"):
        _ = HistoryFile(f"{FOLDER}/x_y_0.parquet", 1).name
