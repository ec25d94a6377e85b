"""The judgement: lakebed, real Hudi and the model on one table.

lakebed  == model (folded upwards)            always, and with every filter and column choice
Hudi     == model (logs folded first)         always
the two folds differ only on keys that `differences.LISTED_DIFFERENCES` explains
lakebed  == Hudi in all columns, the five meta columns included, on every other key
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import lakebed

from .client import HudiPeer
from .differences import listed
from .hudi_writer import Done
from .model import Key, Model, Version
from .rows import (
    COMMIT_TIME,
    PARTITION_PATH,
    RECORD_KEY,
    Answer,
    from_arrow,
    from_json,
    plain,
    row_difference,
    schema_difference,
)

QUERY_TYPE = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"


@dataclass
class Judge:
    """Compares the readers of one table with its model; `history[n]` is what the model held after write n + 1."""

    hudi: HudiPeer
    path: str
    model: Model
    instants: list[Done]
    history: list[tuple[tuple[str, ...], dict[Key, Version], dict[Key, Version]]] = field(default_factory=list)

    def note_history(self) -> None:
        """Remember the state for time travel; call it after every operation."""
        while len(self.history) < self.model.writes:
            self.history.append((tuple(self.model.columns), self.model.snapshot(), self.model.hudi_snapshot()))

    def answer(self, versions: Mapping[Key, Version], columns: tuple[str, ...] | None = None) -> Answer:
        """Rows of the model in the notation of the readers."""
        names = columns or tuple(self.model.columns)
        types = dict(self.model.shape.columns())
        rows = [
            (
                self.instants[version.write - 1].requested_time,
                key[1],
                key[0],
                *(plain((version.row or {}).get(name), types.get(name)) for name in names),
            )
            for key, version in versions.items()
        ]
        shown = (COMMIT_TIME, RECORD_KEY, PARTITION_PATH, *names)
        return Answer(shown, ("",) * len(shown), tuple(rows))

    # -- snapshots

    def lakebed_snapshot(self) -> Iterator[str]:
        yield self._versus("lakebed's snapshot", self.model.snapshot(), self._ours())

    def both_snapshots(self) -> Iterator[str]:
        """Both readers against the model, and against each other where nothing is listed."""
        ours, theirs = self._ours(), from_json(self.hudi.read(self.path))
        yield self._versus("lakebed's snapshot", self.model.snapshot(), ours)
        yield self._versus("Hudi's snapshot", self.model.hudi_snapshot(), theirs)
        yield from self._unlisted(self.model.snapshot(), self.model.hudi_snapshot(), 0)
        yield from self._each_other("snapshot", ours, theirs, 0)

    def read_optimized(self) -> Iterator[str]:
        if not self.model.shape.is_mor:
            return
        ours = from_arrow(lakebed.open(self.path).scan(query="read_optimized").to_arrow())
        theirs = from_json(self.hudi.read(self.path, {QUERY_TYPE: "read_optimized"}))
        yield told("read-optimized, lakebed and Hudi", row_difference(theirs, ours))
        if self.model.shape.places_known and not self.model.shape.index_forgets_deletes:
            yield self._versus("lakebed's read-optimized answer", self.model.read_optimized(), ours)

    def filters(self, rng: random.Random) -> Iterator[str]:
        """Pruning and projection must not change what a plain scan would leave."""
        everything = self.answer(self.model.snapshot())
        if not everything.rows:
            return
        middle = sorted(row["v"] for row in everything.dicts())[len(everything.rows) // 2]
        some = rng.choice(everything.dicts())
        wanted = {
            f"v > {middle}": everything.where(lambda row: row["v"] > middle),
            f"id = '{some['id']}'": everything.where(lambda row: row["id"] == some["id"]),
            f"p = '{some['p']}' and ts <= {some['ts']}": everything.where(
                lambda row: row["p"] == some["p"] and row["ts"] <= some["ts"]
            ),
        }
        for text, expected in wanted.items():
            names = [RECORD_KEY, *rng.sample(self.model.columns, 3)]
            names = list(dict.fromkeys(names))
            got = from_arrow(lakebed.open(self.path).scan(columns=names, filter=text).to_arrow())
            yield told(f"lakebed with {text} and columns {names}", row_difference(expected.select(names), got))

    # -- time

    def incremental(self, after: int) -> Iterator[str]:
        """What came after write number `after`."""
        start = self.instants[after - 1].completion
        ours = from_arrow(lakebed.open(self.path).incremental(start=start).to_arrow())
        theirs = from_json(self.hudi.read(self.path, {QUERY_TYPE: "incremental", BEGIN: start}))
        wanted, predicted = self.model.incremental(after), self.model.hudi_incremental(after)
        yield self._versus(f"lakebed's incremental answer after {start}", wanted, ours)
        yield self._versus(f"Hudi's incremental answer after {start}", predicted, theirs)
        yield from self._unlisted(wanted, predicted, after)

    def as_of(self, write: int) -> Iterator[str]:
        """The table as it was after write number `write`."""
        columns, versions, hudis = self.history[write - 1]
        instant = self.instants[write - 1].requested_time
        ours = from_arrow(lakebed.open(self.path).scan(as_of=instant).to_arrow())
        theirs = from_json(self.hudi.read(self.path, {"as.of.instant": instant}))
        yield told(f"lakebed as of {instant}", row_difference(self.answer(versions, columns), ours))
        yield told(f"Hudi as of {instant}", row_difference(self.answer(hudis, columns), theirs))

    # -- inside

    def _ours(self) -> Answer:
        return from_arrow(lakebed.open(self.path).scan().to_arrow())

    def _versus(self, who: str, versions: Mapping[Key, Version], read: Answer) -> str:
        return told(f"{who} against the model", row_difference(self.answer(versions), read))

    def _unlisted(self, ours: Mapping[Key, Version], theirs: Mapping[Key, Version], after: int) -> Iterator[str]:
        for key in sorted(ours.keys() | theirs.keys()):
            if ours.get(key) != theirs.get(key) and listed(self.model, self.model.cells[key], after) is None:
                yield f"key {key}: no listed difference explains {ours.get(key)} (ours) and {theirs.get(key)} (Hudi's)"

    def _each_other(self, what: str, ours: Answer, theirs: Answer, after: int) -> Iterator[str]:
        """All columns on the keys where nothing is listed; the schema as a whole."""
        yield told(f"{what} schema, Hudi's against ours", schema_difference(theirs, ours))
        cells = self.model.cells
        special = {key for key, cell in cells.items() if listed(self.model, cell, after) is not None}

        def plain_key(row: dict[str, object]) -> bool:
            return (row[PARTITION_PATH], row[RECORD_KEY]) not in special

        if theirs.columns == ours.columns:
            yield told(f"{what}, Hudi's against ours", row_difference(theirs.where(plain_key), ours.where(plain_key)))


def told(what: str, difference: str) -> str:
    return f"{what}: {difference}" if difference else ""


def first(complaints: Iterator[str]) -> str:
    """The first complaint, or nothing."""
    return next(itertools.chain(filter(None, complaints), [""]))
