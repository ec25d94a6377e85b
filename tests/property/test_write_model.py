"""Random workloads of every write operation, on every kind of table, against a dictionary.

After each write the snapshot, the state as of every earlier write, and the changes since every earlier write must be
those of the model; every file of a sorted layout must be what its marks say. Settings are combined pairwise, so each
two of them meet somewhere. `LAKEBED_MODEL_SECONDS=600` goes on with further seeds for as long.
"""

from __future__ import annotations

import itertools
import os
import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.datafile.sorted_check import check_sorted_file
from lakebed.model.record_key import key_generator_of
from lakebed.model.schema import COMMIT_TIME, META_FIELD_NAMES, PARTITION_PATH, RECORD_KEY
from lakebed.read.kept_vectors import KEPT
from lakebed.storage.open import open_storage
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from tests.property.write_model import IS_DELETED, Model, Place, Row, Version

KEYS = 16
PARTITIONS = ("a", "b", "c")
STEPS = 7
FACTORS: dict[str, tuple[Any, ...]] = {
    "index": ("bucket", "consistent_bucket", "simple", "bloom", "global_simple", "global_bloom"),
    "keys": ("string", "int", "composite", "none"),
    "logs": ("v1 9", "v1 8", "v2 10"),
    "table_type": ("mor", "cow"),
    "layout": ("lsm_tree", "default"),
    "partitioned": (True, False),
    "event_time": (True, False),
    "meta_fields": (True, False),
}


@dataclass(frozen=True)
class Kind:
    """The settings of one table."""

    index: str
    keys: str
    logs: str
    table_type: str
    layout: str
    partitioned: bool
    event_time: bool
    meta_fields: bool

    def __str__(self) -> str:
        words = [self.index, self.keys, self.logs.replace(" ", "."), self.table_type, self.layout]
        words += ["parts"] * self.partitioned + ["event"] * self.event_time + ["bare"] * (not self.meta_fields)
        return "-".join(words)

    @property
    def is_possible(self) -> bool:
        hashed = "bucket" in self.index
        if self.keys == "none" and (hashed or self.event_time):
            return False
        if not self.meta_fields and (self.keys == "none" or "bloom" in self.index):
            return False
        return not (self.index == "consistent_bucket" and self.table_type == "cow")

    @property
    def is_hashed(self) -> bool:
        return "bucket" in self.index

    @property
    def is_global(self) -> bool:
        return self.index.startswith("global")


def pairwise(seed: int) -> list[Kind]:
    """Few tables among which any two settings that go together meet."""
    chance = random.Random(seed)
    names = list(FACTORS)
    everything = [kind for values in itertools.product(*FACTORS.values()) if (kind := Kind(*values)).is_possible]
    pairs = {kind: frozenset(_pairs(kind, names)) for kind in everything}
    missing = set().union(*pairs.values())
    chosen = []
    while missing:
        chance.shuffle(everything)
        best = max(everything, key=lambda kind: len(pairs[kind] & missing))
        missing -= pairs[best]
        chosen.append(best)
    return chosen


def _pairs(kind: Kind, names: list[str]) -> Iterator[tuple[str, Any, str, Any]]:
    for one, other in itertools.combinations(names, 2):
        yield one, getattr(kind, one), other, getattr(kind, other)


# ---------------------------------------------------------------------- the workload
class Workload:
    """One table, its model, and chance."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.kind = kind
        self.chance = random.Random(seed)
        self.serial = 0
        self.floor: dict[Any, int] = {}
        """No later row of a key may be older than its newest ordered delete: how long such a delete is remembered is
        up to the table's type."""
        log_format, version = kind.logs.split()
        key_columns = {"string": ["id"], "int": ["id"], "composite": ["id", "b"], "none": []}[kind.keys]
        self.key_columns = key_columns
        id_type = pa.int64() if kind.keys == "int" else pa.string()
        self.schema = pa.schema(
            [
                pa.field("id", id_type),
                pa.field("b", pa.int32()),
                pa.field("ts", pa.int64()),
                pa.field("p", pa.string()),
                pa.field("v", pa.int64()),
                pa.field("txt", pa.string()),
                pa.field(IS_DELETED, pa.bool_()),
            ]
        )
        self.url = f"memory://write-model/{uuid.uuid4().hex}"
        self.table: Table = lakebed.create(
            self.url,
            self.schema,
            record_key=key_columns or None,
            partition_by="p" if kind.partitioned else None,
            ordering="ts" if kind.event_time else None,
            table_type=kind.table_type,
            layout=kind.layout,
            log_format=log_format,
            index=kind.index,
            num_buckets=3 if kind.is_hashed else None,
            properties={
                "hoodie.table.version": version,
                "hoodie.populate.meta.fields": str(kind.meta_fields).lower(),
            },
        )
        self.model = Model(
            key_of=lambda row: tuple(row[name] for name in key_columns or ["v"]),
            partition_of=lambda row: f"p={row['p']}" if kind.partitioned else "",
            by_event_time=kind.event_time,
            is_global=kind.is_global,
        )
        self.instants: list[str] = []
        self.completions: list[str] = []

    # ------------------------------------------------------------------ rows
    def row(self, number: int | None = None, *, partition: str | None = None) -> Row:
        """A row of a random key; its value is told apart from every other."""
        chance = self.chance
        self.serial += 1
        number = chance.randrange(KEYS) if number is None else number
        ident: Any = number * 7 - 20 if self.kind.keys == "int" else f"k{number:03d}{'é' * (number % 3)}"
        return {
            "id": ident,
            "b": number % 5,
            "ts": max(chance.randint(1, 30), self.floor.get(number, 0)),
            "p": partition or chance.choice(PARTITIONS),
            "v": self.serial,
            "txt": chance.choice([None, "", f"t{self.serial}"]),
            IS_DELETED: chance.choice([None, False]),
        }

    def rows(self, most: int = 12, *, deletes: bool = False) -> list[Row]:
        """A batch that repeats keys, brings late rows and, if asked, deletes some by mark."""
        found = []
        for _ in range(self.chance.randint(1, most)):
            number = self.chance.randrange(KEYS)
            row = self.row(number)
            if deletes and self.kind.keys != "none" and self.chance.random() < 0.2:
                row[IS_DELETED] = True
                if self.kind.event_time and self.chance.random() < 0.3:
                    row["ts"] = None
                else:
                    self.floor[number] = row["ts"]
            found.append(row)
        return found

    def new_rows(self, most: int = 8, *, replacing: bool = False) -> list[Row]:
        """Rows for inserts: where nothing looks keys up, each must come once, and be new unless all is replaced."""
        if self.kind.is_hashed or self.kind.keys == "none":
            return self.rows(most)
        known = set() if replacing else {place[1] for place in self.model.rows}
        numbers = list(range(KEYS))
        self.chance.shuffle(numbers)
        rows = [self.row(number) for number in numbers[:most]]
        return [row for row in rows if self.model.key_of(row) not in known]

    def table_of(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=self.schema)

    # ------------------------------------------------------------------ operations
    def step(self) -> str:
        keyless = self.kind.keys == "none"
        names = ["insert", "bulk_insert", "delete_where", "update", "overwrite", "overwrite_partitions"]
        if not keyless:
            names += ["upsert"] * 6 + ["delete_keys"] * 2 + ["merge"] * 2
        if self.kind.partitioned:
            names.append("delete_partitions")
        name = "insert" if not self.instants else self.chance.choice(names)
        getattr(self, f"do_{name}")()
        return name

    def do_upsert(self) -> None:
        rows = self.rows(deletes=True)
        self.done(self.table.upsert(self.table_of(rows)))
        self.model.upsert(rows)

    def do_insert(self) -> None:
        rows = self.new_rows()
        self.done(self.table.insert(self.table_of(rows)))
        self.model.upsert(rows)

    def do_bulk_insert(self) -> None:
        rows = self.new_rows()
        self.done(self.table.bulk_insert(self.table_of(rows)))
        self.model.upsert(rows)

    def do_delete_where(self) -> None:
        limit = self.chance.randint(1, 40)
        self.done(self.table.delete(where=f"v % 3 = 0 AND ts < {limit}"))
        self.model.delete(lambda row: row["v"] % 3 == 0 and row["ts"] < limit)

    def do_delete_keys(self) -> None:
        rows = [self.row() for _ in range(self.chance.randint(1, 5))]
        with_partition = self.kind.partitioned and self.chance.random() < 0.5
        names = [*self.key_columns, *(["p"] if with_partition else [])]
        if len(names) == 1:
            self.done(self.table.delete(keys=[row[names[0]] for row in rows]))
        else:
            self.done(self.table.delete(keys=[{name: row[name] for name in names} for row in rows]))
        if self.kind.is_global:
            names = self.key_columns
        gone = {tuple(row[name] for name in names) for row in rows}
        self.model.delete(lambda row: tuple(row[name] for name in names) in gone)

    def do_update(self) -> None:
        limit = self.chance.randint(1, 40)
        self.done(self.table.update(set={"txt": "'u'", "v": "v + 0"}, where=f"ts < {limit}"))
        self.model.update(lambda row: {**row, "txt": "u"}, lambda row: row["ts"] < limit)

    def do_merge(self) -> None:
        """By key and partition: odd values update, others delete if they are large, what is missing comes in."""
        rows = list({self.model.key_of(row): row for row in self.rows()}.values())
        names = [*self.key_columns, *(["p"] if self.kind.partitioned else [])]
        merge = self.table.merge(self.table_of(rows), on=" AND ".join(f"t.{name} = s.{name}" for name in names))
        merge = merge.when_matched_update(set={"txt": "concat(s.v, '')"}, condition="t.v % 2 = 1")
        only_updates = self.chance.random() < 0.4
        if not only_updates:
            merge = merge.when_matched_delete(condition="t.v > 20").when_not_matched_insert_all()
        self.done(merge.execute())
        new = []
        for row in rows:
            place = (self.model.partition_of(row), self.model.key_of(row))
            old = self.model.rows.get(place)
            if old is None:
                new += [] if only_updates else [row]
            elif old.row["v"] % 2 == 1:
                self.model.rows[place] = Version({**old.row, "txt": str(row["v"])}, self.model.commit)
            elif not only_updates and old.row["v"] > 20:
                del self.model.rows[place]
        self.model.upsert(new)

    def do_overwrite(self) -> None:
        self.floor.clear()
        rows = self.new_rows(replacing=True)
        self.done(self.table.overwrite(self.table_of(rows)))
        self.model.overwrite(rows)

    def do_overwrite_partitions(self) -> None:
        rows = self.new_rows(4, replacing=not self.kind.is_global) or [self.row(KEYS)]
        self.done(self.table.overwrite_partitions(self.table_of(rows)))
        self.model.overwrite_partitions(rows)

    def do_delete_partitions(self) -> None:
        paths = sorted({place[0] for place in self.model.rows})
        if not paths:
            return self.do_insert()
        path = self.chance.choice(paths)
        self.done(self.table.delete_partitions([path]))
        self.model.delete_partitions([path])
        return None

    def done(self, result: lakebed.CommitResult) -> None:
        self.instants.append(result.instant)
        self.completions.append(result.completion_time)

    # ------------------------------------------------------------------ what must hold after each write
    def check(self) -> None:
        table = lakebed.open(self.url)
        self.same(table.scan().to_arrow(), self.model.rows)
        for number, instant in enumerate(self.instants):
            self.same(table.scan(as_of=instant).to_arrow(), self.model.snapshots[number])
        for number, completion in enumerate(self.completions[:-1] if self.kind.meta_fields else []):
            self.same(table.incremental(completion).to_arrow(), self.model.changed_after(number))
        self.check_files(table)

    def same(self, found: pa.Table, wanted: dict[Place, Version]) -> None:
        rows = found.to_pylist()
        if not self.kind.meta_fields:
            places = [(self.model.partition_of(row), self.model.key_of(row)) for row in rows]
            assert len(set(places)) == len(places), "a key is there twice"
            assert dict(zip(places, rows, strict=True)) == {place: version.row for place, version in wanted.items()}
            return
        keys = [(row[PARTITION_PATH], row[RECORD_KEY]) for row in rows]
        assert len(set(keys)) == len(keys), "a key is there twice"
        held = {}
        for row in rows:
            own = {name: value for name, value in row.items() if name not in META_FIELD_NAMES}
            held[(row[PARTITION_PATH], self.model.key_of(own))] = (own, row[COMMIT_TIME])
        assert held == {place: (version.row, self.instants[version.commit]) for place, version in wanted.items()}

    def check_files(self, table: Table) -> None:
        if self.kind.layout != "lsm_tree":
            return
        storage = open_storage(self.url)
        generator = None if self.kind.meta_fields else key_generator_of(MetaClient.open(storage).config)
        for piece in table.inspect.file_slices().to_pylist():
            names = [*filter(None, [piece["base_file"]]), *piece["logs"]]
            folder = f"{piece['partition']}/" if piece["partition"] else ""
            for name in names:
                assert check_sorted_file(storage, f"{folder}{name}", generator=generator) == []


def run(kind: Kind, seed: int, steps: int = STEPS) -> None:
    """A workload to its end; a failure says how to see it again."""
    work = Workload(kind, seed)
    done: list[str] = []
    try:
        for _ in range(steps):
            done.append(work.step())
            work.check()
        assert lakebed.open(work.url).check() == []
    except BaseException as error:
        error.add_note(f"{kind!r}, seed {seed}, after {', '.join(done)}")
        raise


@pytest.fixture(autouse=True)
def kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables here have names of their own, so what reads keep of them is tested along."""
    monkeypatch.setattr(KEPT, "in_memory_stores", True)


@pytest.mark.parametrize("kind", pairwise(0), ids=str)
def test_every_operation_does_what_the_model_says(kind: Kind) -> None:
    run(kind, 1)


def test_more_seeds_for_as_long_as_asked() -> None:
    deadline = time.monotonic() + float(os.environ.get("LAKEBED_MODEL_SECONDS", "0"))
    seed = int(os.environ.get("LAKEBED_MODEL_SEED", "100"))
    while time.monotonic() < deadline:
        for kind in pairwise(seed):
            if time.monotonic() < deadline:
                run(kind, seed, 12)
        seed += 1
