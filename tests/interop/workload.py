"""Seeded workloads: which table to make, and what happens to it.

A seed decides everything, so that a failure is repeated by its number. Shapes are handed out so that early ones cover
as many pairs of choices as they can (a short run meets every index with both versions, both merge modes, and so on);
operations are drawn from weights, with more late rows, deletes and re-inserts than real life has.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from typing import Any

from .operations import AddColumn, Operation, Row, Service, TableShape, Write, sample_row, sample_value

INDEXES = ("bucket", "simple", "bloom", "global_simple", "global_bloom", "record")
PARTITIONS = ("p0", "p1", "p2")


def possible_shapes() -> list[TableShape]:
    """Every shape that makes sense: log blocks matter to merge-on-read only, the record index needs metadata."""
    shapes = [
        TableShape(kind, version, blocks, index, event_time, partitioned, metadata)
        for kind, version, blocks, index, event_time, partitioned, metadata in itertools.product(
            ("mor", "cow"), (9, 8), ("avro", "parquet"), INDEXES, (True, False), (True, False), (False, True)
        )
        if not (kind == "cow" and blocks == "parquet") and not (index == "record" and not metadata)
    ]
    shapes += [
        TableShape(kind, 9, "avro", index, event_time, fills=True)
        for kind, index, event_time in itertools.product(("mor", "cow"), ("bucket", "simple"), (True, False))
    ]
    return sorted(shapes, key=lambda shape: shape.label)


def _pairs(shape: TableShape) -> set[tuple[int, Any, int, Any]]:
    choices = list(enumerate(astuple(shape)))
    return {(i, a, j, b) for (i, a), (j, b) in itertools.combinations(choices, 2)}


def covering_shapes(seed: int) -> Iterator[TableShape]:
    """Shapes without end, each the one that adds most pairs of choices not met yet; merge-on-read twice as often."""
    rng = random.Random(seed)
    everything = possible_shapes()
    met: set[tuple[int, Any, int, Any]] = set()
    while True:
        candidates = rng.sample(everything, 40)
        best = max(candidates, key=lambda shape: (len(_pairs(shape) - met), shape.is_mor))
        if not _pairs(best) - met:
            met.clear()
        met |= _pairs(best)
        yield best


@dataclass
class _Known:
    """What the generator remembers of a key, so that it can aim at it again."""

    partition: str
    ordering: int
    alive: bool = True
    tombstone: int | None = None  # the ordering value of a delete that may still stand in a log


@dataclass
class Workload:
    """The operations of one seed on one shape. Iterate `operations`."""

    shape: TableShape
    seed: int
    steps: int = 9
    batch: int = 12
    services: bool = True
    rng: random.Random = field(init=False)
    known: dict[tuple[str, str], _Known] = field(default_factory=dict)
    added: list[AddColumn] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    now: int = 100
    left_pending: bool = False  # a plan that is never run ends the workload

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed}/{self.shape.label}")

    def operations(self) -> Iterator[Operation]:
        """First a load, then a mix of everything the shape allows."""
        first = self.rng.choice(("insert", "upsert", "bulk_insert"))
        yield Write(first, tuple(self._new_row() for _ in range(3 * self.batch)))
        weights = self._weights()
        names = list(weights)
        for _ in range(self.steps):
            self.now += 10
            drawn = self.rng.choices(names, [weights[name] for name in names])[0]
            yield from self._draw(drawn)
            if self.left_pending:
                return

    def _weights(self) -> dict[str, int]:
        weights = {
            "upsert": 6, "late": 3, "flagged": 3, "delete": 3, "reinsert": 3, "insert": 1,
            "insert_overwrite": 1, "delete_partition": 1 if self.shape.partitioned else 0, "add_column": 1,
        }  # fmt: skip
        if self.services:
            weights["clean"] = 1
            weights["compact"] = 3 if self.shape.is_mor else 0
            weights["log_compact"] = 2 if self.shape.is_mor and self.shape.places_known else 0
            weights["cluster"] = 0 if self.shape.is_bucket else 1
            weights["pending_compact"] = 1 if self.shape.is_mor else 0
            weights["pending_cluster"] = 0 if self.shape.is_bucket else 1
        return {name: weight for name, weight in weights.items() if weight}

    def _draw(self, name: str) -> Iterator[Operation]:
        if name == "add_column":
            kind = self.rng.choice(("string", "long", "double", "date", "list"))
            self.added.append(AddColumn(f"extra{len(self.added)}", kind))
            yield self.added[-1]
            yield Write("upsert", self._mixed())
        elif name == "upsert":
            yield Write("upsert", self._mixed())
        elif name == "late":
            yield Write("upsert", self._updates(late=True))
        elif name == "flagged":
            yield Write("upsert", self._flagged())
        elif name == "delete":
            yield Write("delete", self._deletes())
            if self.rng.random() < 0.5:
                self.now += 10
                yield Write("upsert", self._reinserts())
        elif name == "reinsert":
            yield Write("upsert", self._reinserts())
        elif name == "insert":
            yield Write("insert", tuple(self._new_row() for _ in range(self.batch // 2)))
        elif name == "insert_overwrite":
            yield self._overwrite()
        elif name == "delete_partition":
            yield self._drop_partition()
        elif name in ("clean", "log_compact"):
            yield Write("upsert", self._mixed(), riders=(name,))
        elif name.startswith("pending_"):
            yield from self._pending(name.removeprefix("pending_"))
        else:
            self._forget_tombstones()
            yield Service(name)

    def _pending(self, kind: str) -> Iterator[Operation]:
        """Plan, write on (Hudi refuses updates of what is to be clustered), and then run, or leave it at the plan."""
        yield Service(f"plan_{kind}")
        for verb in ("insert",) if kind == "cluster" else self.rng.sample(("upsert", "late", "delete", "flagged"), 2):
            self.now += 10
            yield from self._draw(verb)
        self.left_pending = self.rng.random() < 0.3
        if not self.left_pending:
            yield Service(f"run_{kind}")

    # -- rows

    def _new_row(self) -> Row:
        number = next(self.numbers)
        key = f"k{number:04d}"
        partition = self.rng.choice(PARTITIONS)
        if not self.shape.is_global and self.shape.partitioned and self.known and self.rng.random() < 0.1:
            key, partition = self._same_key_elsewhere() or (key, partition)
        return self._row(key, partition, self.now + self.rng.randrange(10))

    def _same_key_elsewhere(self) -> tuple[str, str] | None:
        """Without a global index, the same key in another partition is another row."""
        _, key = self.rng.choice(sorted(self.known))
        free = [other for other in PARTITIONS if (other, key) not in self.known]
        return (key, self.rng.choice(free)) if free else None

    def _row(self, key: str, partition: str, ordering: int, *, deleted: bool = False) -> dict[str, Any]:
        number = next(self.numbers)
        row = sample_row(key, partition, ordering, number)
        row.update({column.name: sample_value(column.kind, number) for column in self.added if number % 4})
        row["_hoodie_is_deleted"] = deleted
        place = self.shape.key_of(row)
        known = self.known.setdefault(place, _Known(partition, ordering))
        if not deleted:
            known.alive = True
        if not self.shape.event_time or ordering >= known.ordering:
            known.ordering, known.alive = ordering, not deleted
        if deleted:
            known.tombstone = max(ordering, known.tombstone or 0)
        return row

    def _pick(self, count: int, *, alive: bool) -> list[tuple[str, _Known]]:
        places = sorted(place for place, known in self.known.items() if known.alive == alive)
        chosen = self.rng.sample(places, min(count, len(places)))
        return [(key, self.known[(partition, key)]) for partition, key in chosen]

    def _updates(self, *, late: bool, count: int | None = None) -> tuple[Row, ...]:
        rows = []
        for key, known in self._pick(count or self.batch, alive=True):
            ordering = self.rng.randrange(1, self.now) if late else self.now + self.rng.randrange(10)
            if self.rng.random() < 0.2:
                ordering = known.ordering  # a tie: the later commit wins
            rows.append(self._row(key, known.partition, ordering))
        return tuple(rows) or (self._new_row(),)

    def _mixed(self) -> tuple[Row, ...]:
        """Updates, news, and now and then one key twice in the batch."""
        rows = [*self._updates(late=False, count=self.batch // 2), *(self._new_row() for _ in range(self.batch // 3))]
        if self.shape.event_time and not self.shape.fills and self.rng.random() < 0.5:
            twin = rows[0]
            rows.append(self._row(twin["id"], twin["p"], twin["ts"] + 1))
        return tuple(rows)

    def _flagged(self) -> tuple[Row, ...]:
        """Rows that say they are deletes: newer ones, and late ones that must lose."""
        rows: list[Row] = []
        for key, known in self._pick(self.batch // 2, alive=True):
            late = self.rng.random() < 0.3 and not self.shape.index_forgets_deletes
            ordering = self.rng.randrange(1, known.ordering + 1) if late else self.now + self.rng.randrange(10)
            rows.append(self._row(key, known.partition, ordering, deleted=True))
        return (*rows, self._new_row())

    def _deletes(self) -> tuple[Row, ...]:
        rows = []
        for key, known in self._pick(self.batch // 2, alive=True):
            row = self._row(key, known.partition, known.ordering)
            known.alive = False
            rows.append(row)
        return tuple(rows) or (self._new_row(),)

    def _reinserts(self) -> tuple[Row, ...]:
        """Dead keys again, with greater and with smaller ordering values than they had."""
        rows = []
        for key, known in self._pick(self.batch // 2, alive=False):
            newer = self.rng.random() < 0.5 or (self.shape.index_forgets_deletes and known.tombstone is not None)
            ordering = self.now + self.rng.randrange(10) if newer else self.rng.randrange(1, self.now)
            rows.append(self._row(key, known.partition, ordering))
        return (*rows, self._new_row())

    def _overwrite(self) -> Write:
        """New content for one partition, or for the whole of a table that has none."""
        partition = self.rng.choice(PARTITIONS)
        self._forget_partition(partition)
        rows = tuple(self._row(f"k{next(self.numbers):04d}", partition, self.now) for _ in range(self.batch // 2))
        return Write("insert_overwrite", rows)

    def _drop_partition(self) -> Write:
        partition = self.rng.choice(PARTITIONS)
        self._forget_partition(partition)
        return Write("delete_partition", (sample_row("none", partition, self.now, 1),))

    def _forget_partition(self, partition: str) -> None:
        gone = [place for place in self.known if not self.shape.partitioned or place[0] == partition]
        for place in gone:
            del self.known[place]

    def _forget_tombstones(self) -> None:
        for known in self.known.values():
            known.tombstone = None
