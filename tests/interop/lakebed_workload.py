"""Random operations by lakebed on one table, with the model following. A seed decides everything."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import lakebed

from .differences import keys_that_stay_deleted
from .hudi_writer import Done
from .kinds import IS_DELETED, QUARTERS, Kind
from .operations import Row, sample_row
from .written_model import Place, WrittenModel

FIRST_DAY = 1_700_000_000_000
DAY = 86_400_000


@dataclass
class LakebedWorkload:
    """The writer of one table. `instants[n - 1]` is the instant of what the model calls write n."""

    kind: Kind
    seed: int
    table: lakebed.Table
    model: WrittenModel
    batch: int = 10
    instants: list[Done] = field(default_factory=list)
    rng: random.Random = field(init=False)
    keys: int = 0
    numbers: int = 0
    now: int = 100
    floor: dict[int, int] = field(default_factory=dict)
    """Keys that were deleted by a mark, and its ordering value: how long that is remembered differs by table type."""

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed}/{self.kind}")

    # ------------------------------------------------------------------ rows
    def row(self, key: int, *, late: bool = False, strays: bool = True) -> dict[str, Any]:
        """A row of a key: mostly in the partition where the key began, sometimes in another."""
        self.numbers += 1
        home = key if not strays or self.rng.random() > 0.15 else self.rng.randrange(3)
        ordering = self.rng.randint(1, self.now) if late else self.now + self.rng.randrange(9)
        found = {
            **sample_row(f"k{key:03d}", self.kind.places[home % 3], ordering, self.numbers),
            "b": key % 5,
            "q": QUARTERS[home % 2],
            "seq": self.rng.randrange(4),
            "at_ms": FIRST_DAY + home % 3 * DAY + key,
        }
        current = self.model.where_is(found)
        if late and current is not None and self.rng.random() < 0.4:  # the further ordering fields decide
            old = self.model.rows[current].row
            found["ts"] = old["ts"] if old is not None else ordering
        found["ts"] = max(found["ts"], self.floor.get(key, 0))
        return found

    def new_rows(self, count: int) -> list[Row]:
        first = self.keys
        self.keys += count
        return [self.row(key) for key in range(first, self.keys)]

    def mixed(self, *, late: bool = True, marks: bool = True) -> list[Row]:
        """Updates, late rows, repeated keys, deletes by mark, and a few new keys."""
        found: list[Row] = []
        for _ in range(self.batch):
            key = self._known_key()
            row = self.row(key, late=late and self.rng.random() < 0.3)
            if marks and self.kind.has_marks and self.rng.random() < 0.15:
                row[IS_DELETED] = True
                if self.kind.by_event_time and self.rng.random() < 0.3:
                    row |= {"ts": None, "seq": None}
                else:
                    self.floor[key] = row["ts"] + 1  # whatever a second ordering field says
            found.append(row)
        return found + self.new_rows(2)

    def _known_key(self) -> int:
        """A key that was there before; where logs hold partial rows not one that a log deletes (see `differences`)."""
        gone = keys_that_stay_deleted(self.model)
        while True:
            key = self.rng.randrange(self.keys)
            if self.kind.record_key({"id": f"k{key:03d}", "b": key % 5}) not in gone:
                return key

    def table_of(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist([dict(row) for row in rows], schema=self.kind.schema())

    # ------------------------------------------------------------------ operations
    def load(self) -> str:
        """The first write."""
        rows = self.new_rows(4 * self.batch)
        name = self.rng.choice(("insert", "upsert", "bulk_insert"))
        self._done(getattr(self.table, name)(self.table_of(rows)))
        self.model.upsert(rows)
        return name

    def step(self, name: str | None = None) -> str:
        """One operation, a random one unless named."""
        if name is None:
            name = self.rng.choice(self.choices())
        self.now += 10
        do: Callable[[], None] = getattr(self, f"do_{name}")
        do()
        return name

    def choices(self) -> list[str]:
        names = ["upsert"] * 4 + ["insert", "bulk_insert", "delete_where", "update", "merge_partial"]
        names += ["delete_keys"] * 2 + ["overwrite_partitions"]
        return names if self.kind.keys == "flat" else [*names, "delete_partitions"]

    def do_upsert(self) -> None:
        self._upsert("upsert", self.mixed())

    def do_insert(self) -> None:
        self._upsert("insert", self.mixed() if self.kind.is_hashed else self.new_rows(self.batch // 2))

    def do_bulk_insert(self) -> None:
        self._upsert("bulk_insert", self.mixed() if self.kind.is_hashed else self.new_rows(self.batch // 2))

    def do_delete_keys(self) -> None:
        chosen = self.rng.sample(sorted(self.model.rows), min(4, len(self.model.rows)))
        rows = [version.row for place in chosen if (version := self.model.rows[place]).row is not None]
        rows = [row for row in rows if row is not None] + [self.row(900)]
        with_partition = self.rng.random() < 0.5
        names = [*self.kind.key_fields, *(self.kind.partition_fields if with_partition else ())]
        self._done(self.table.delete(keys=[{name: row[name] for name in names} for row in rows]))
        keys = {self.kind.record_key(row) for row in rows}
        everywhere = self.kind.is_global or not with_partition
        self.model.delete([place for place in self.model.rows if place[1] in keys] if everywhere else chosen)

    def do_delete_where(self) -> None:
        limit = self.rng.randint(self.now // 2, self.now)
        self._done(self.table.delete(where=f"v % 3 = 0 AND ts < {limit}"))
        self.model.delete(self._matching(lambda row: row["v"] % 3 == 0 and row["ts"] < limit))

    def do_update(self) -> None:
        self._done(self.table.update(set={"txt": "'u'", "v": "v + 1000"}, where="v % 4 = 1"))
        found = self._matching(lambda row: row["v"] % 4 == 1)
        self.model.update({place: {"txt": "u", "v": self._live(place)["v"] + 1000} for place in found})

    def do_merge_partial(self) -> None:
        """Updates of some columns: on merge-on-read, logs hold only these."""
        chosen = self.rng.sample(sorted(self.model.rows), min(self.batch, len(self.model.rows)))
        source = [{**self._live(place), "txt": f"merged {self.now}", "v": self.now} for place in chosen]
        names = (*self.kind.key_fields, *self.kind.partition_fields)
        on = " AND ".join(f"t.{name} = s.{name}" for name in names)
        merge = self.table.merge(self.table_of([*source, self.row(901)]), on=on)
        self._done(merge.when_matched_update(set={"txt": "s.txt", "v": "s.v"}).execute())
        changes = {place: {"txt": row["txt"], "v": row["v"]} for place, row in zip(chosen, source, strict=True)}
        self.model.update(changes, partial=self.kind.is_mor and self.kind.meta_fields)

    def do_overwrite(self) -> None:
        rows = self.new_rows(2 * self.batch)
        self._done(self.table.overwrite(self.table_of(rows)))
        self.model.replace(rows, None)

    def do_overwrite_partitions(self) -> None:
        rows = [self.row(self.keys + number, strays=False) for number in range(0, 12, 3)]
        self.keys += 12
        self._done(self.table.overwrite_partitions(self.table_of(rows)))
        self.model.replace(rows, {self.kind.partition_path(row) for row in rows})

    def do_delete_partitions(self) -> None:
        paths = sorted({place[0] for place in self.model.rows})
        if len(paths) < 2:
            return self.do_overwrite()
        gone = self.rng.choice(paths)
        self._done(self.table.delete_partitions([gone]))
        self.model.replace([], {gone})
        return None

    # ------------------------------------------------------------------ pieces
    def _upsert(self, verb: str, rows: list[Row]) -> None:
        self._done(getattr(self.table, verb)(self.table_of(rows)))
        self.model.upsert(rows)

    def _live(self, place: Place) -> Row:
        row = self.model.rows[place].row
        assert row is not None
        return row

    def _matching(self, matches: Callable[[Row], bool]) -> list[Place]:
        return [place for place in self.model.rows if matches(self._live(place))]

    def _done(self, result: lakebed.CommitResult) -> None:
        self.instants.append(Done(result.instant, result.completion_time, "lakebed"))
