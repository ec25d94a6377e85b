"""Homes for new keys, part by part: later parts go on filling the files that earlier parts began."""

from __future__ import annotations

from collections import Counter
from itertools import count

from lakebed.config.write_options import WriteOptions
from lakebed.model.files import BaseFile, FileGroupId, FileSlice
from lakebed.write.tagging.small_files import SLOTS, insert_buckets

OPTIONS = WriteOptions(max_file_size=1_000, small_file_limit=800)
GROUP = FileGroupId("p", "small-0")
SMALL = FileSlice(GROUP, "001", BaseFile("p/small-0_0-0-0_001.parquet", 600, GROUP, "001", "0-0-0"))


def test_parts_fill_small_files_and_new_groups_as_one_write_would() -> None:
    numbers = count()
    taken: Counter[str] = Counter()

    def new_id() -> str:
        return f"new{next(numbers)}-0"

    for _ in range(7):  # 7 * 300 bytes: 400 fit into the small file, and 1700 take two new ones
        homes = insert_buckets([SMALL], 300, OPTIONS, new_id, is_mor=False, taken=taken)
        assert sum(home.slots for home in homes) == SLOTS
        assert all((home.slice is SMALL) == (home.file_id == "small-0") for home in homes)
        taken.update({home.file_id: 300 * home.slots // SLOTS for home in homes})
    assert taken.keys() == {"small-0", "new0-0", "new1-0"}
    assert 390 <= taken["small-0"] <= 400
    assert 990 <= taken["new0-0"] <= 1_000
    whole = insert_buckets([SMALL], 2_100, OPTIONS, new_id, is_mor=False)
    assert len(whole) == 3
