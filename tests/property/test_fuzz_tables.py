"""Whole tables under damage: random bytes of a random file of a golden table, against the contract in `damage.py`.

`LAKEBED_FUZZ_SECONDS=600 pytest tests/property/test_fuzz_tables.py` looks for longer, and writes what it finds to
`fuzz_seeds/`. A seed stays there after its bug is fixed, with the outcome that is right.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.handmade import HandmadeTable
from lakebed.storage.memory import MemoryStorage
from tests.property.damage import QUERIES, STEPS, Damage, Step, ask, check, is_completed_instant

Golden = Callable[[str], Path]
SEEDS = Path(__file__).parent / "fuzz_seeds"
BUDGET = float(os.environ.get("LAKEBED_FUZZ_SECONDS", "0"))
NATIVE = "native_v10"
"""Made by hand: no released Hudi writes native logs yet."""
TABLES = (
    NATIVE,
    "cow_simple_v9",
    "mor_avro_v9",
    "mor_parquet_v9",
    "orc_cow_v9",
    "orc_mor_v9",
    "mdt_all_v9",
    "mor_maint_v9",
)


def native_table(root: Path) -> Path:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
    made = HandmadeTable(root, schema, base_row_group=40, log_row_group=20)

    def rows(keys: range, ts: int) -> pa.Table:
        ids = [f"k{key:03d}" for key in keys]
        return pa.table({"id": ids, "ts": [ts] * len(ids), "v": [key / 3 for key in keys]}, schema=schema)

    made.base(rows(range(100), 1))
    made.log(rows(range(50, 110, 2), 2), pa.table({"id": ["k001", "k003"]}))
    made.log(rows(range(0, 30, 3), 3), native=False)
    made.log(deletes=pa.table({"id": ["k060"], "ts": [9]}))
    return made.root


class Pond:
    """Tables in memory, their files and right answers, made when they are first asked for."""

    def __init__(self, golden: Golden, folder: Path) -> None:
        self._golden = golden
        self._folder = folder
        self._storages: dict[str, MemoryStorage] = {}
        self._right: dict[tuple[str, str], Any] = {}

    def storage(self, name: str) -> MemoryStorage:
        if name not in self._storages:
            root = native_table(self._folder / name) if name == NATIVE else self._golden(name)
            self._storages[name] = MemoryStorage.from_folder(root)
        return self._storages[name]

    def files(self, name: str) -> list[tuple[str, int]]:
        return [(info.path, info.size) for info in self.storage(name).list(recursive=True)]

    def right(self, name: str, query: str) -> Any:
        if (name, query) not in self._right:
            self._right[name, query] = ask(self.storage(name), query)
        return self._right[name, query]

    def check(self, damage: Damage, query: str) -> str:
        return check(damage, query, self.storage(damage.table), self.right(damage.table, query))


@pytest.fixture(scope="module")
def pond(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Pond:
    return Pond(golden, tmp_path_factory.mktemp("pond"))


def steps_for(file: str, size: int) -> st.SearchStrategy[tuple[Step, ...]]:
    """Changes of a file, more often near its ends: there are headers, footers and lengths."""
    inside = st.integers(0, max(size, 1))
    near_end = st.integers(0, 200).map(lambda back: max(0, size - back))
    kinds = st.sampled_from([*STEPS, "flip", "flip"] + ([] if is_completed_instant(file) else ["remove"]))
    sizes, values = st.sampled_from([1, 2, 4, 8, 16, 100]), st.sampled_from([0, 1, 85, 127, 128, 254, 255])
    step = st.builds(Step, kinds, st.one_of(inside, st.integers(0, 200), near_end), sizes, values)
    return st.lists(step, min_size=1, max_size=3).map(tuple)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damage_is_refused_or_without_effect(pond: Pond, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(TABLES))
    file, size = data.draw(st.sampled_from(pond.files(name)))
    damage = Damage(name, file, data.draw(steps_for(file, size)))
    pond.check(damage, data.draw(st.sampled_from(QUERIES)))


@pytest.mark.parametrize("seed", sorted(SEEDS.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_found_once_stays_fixed(pond: Pond, seed: Path) -> None:
    found = json.loads(seed.read_text())
    assert pond.check(Damage.from_json(found), found["query"]) == found["outcome"]


@pytest.mark.skipif(not BUDGET, reason="set LAKEBED_FUZZ_SECONDS to look for longer")
def test_for_as_long_as_asked(pond: Pond) -> None:
    """The same without shrinking; every defect becomes a seed, and the test fails at the end."""
    rng = random.Random()
    end = time.monotonic() + BUDGET
    seen: Counter[str] = Counter()
    defects: list[str] = []
    while time.monotonic() < end:
        name = rng.choice(TABLES)
        file, size = rng.choice(pond.files(name))
        kinds = [*STEPS, "flip", "flip"] + ([] if is_completed_instant(file) else ["remove"])
        places = (lambda size=size: rng.randrange(size + 1), lambda: rng.randrange(200))
        steps = [
            Step(rng.choice(kinds), rng.choice(places)(), rng.choice([1, 2, 4, 8, 100]), rng.randrange(256))
            for _ in range(rng.choice([1, 1, 2, 3]))
        ]
        damage, query = Damage(name, file, tuple(steps)), rng.choice(QUERIES)
        try:
            seen[pond.check(damage, query)] += 1
        except Exception as error:  # whatever it is, it is a defect
            found = {**damage.to_json(), "query": query, "outcome": "refused", "found": repr(error)[:200]}
            text = json.dumps(found, indent=1)
            path = SEEDS / f"found_{hashlib.sha1(text.encode()).hexdigest()[:10]}.json"
            path.write_text(text + "\n")
            defects.append(f"{path.name}: {error!r}")
    assert not defects, "\n".join(defects)
    assert seen["refused"] and seen["right"]
