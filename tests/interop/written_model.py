"""What lakebed's writes mean, as a dictionary: the current row of every key, and the versions that may still lie about.

A batch is folded first, then meets what is there; by event time the greater ordering value wins, the later of equals.
`story` keeps the versions of a key since its file group last became a single base file, or began: real Hudi folds logs
before it looks at the base file, so a key may show another of these versions there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .kinds import IS_DELETED, Kind
from .operations import Row

Place = tuple[str, str]  # partition path, record key


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a key. `row` is None for a delete, `ordering` for a delete that beats whatever is there."""

    write: int
    row: Row | None
    ordering: tuple[Any, ...] | None = None
    partial: bool = False


@dataclass
class WrittenModel:
    """A table that lakebed and Hudi write in turns; `writes` counts commits that change rows."""

    kind: Kind
    rows: dict[Place, Version] = field(default_factory=dict)
    story: dict[Place, list[Version]] = field(default_factory=dict)
    writes: int = 0

    def place(self, row: Row) -> Place:
        return (self.kind.partition_path(row), self.kind.record_key(row))

    def where_is(self, row: Row) -> Place | None:
        """Where the key of a row lives."""
        place = self.place(row)
        if not self.kind.is_global:
            return place if place in self.rows else None
        return next((other for other in self.rows if other[1] == place[1]), None)

    # ------------------------------------------------------------------ operations
    def upsert(self, batch: Iterable[Row]) -> None:
        self.writes += 1
        for row, forced in self._folded(batch):
            self._put(row, forced)

    def delete(self, places: Iterable[Place]) -> None:
        """By key: whatever is there goes, and so do unknown keys."""
        self.writes += 1
        for place in places:
            self._drop(place)

    def update(self, changes: Mapping[Place, Mapping[str, Any]], *, partial: bool = False) -> None:
        """Columns of rows that are there."""
        self.writes += 1
        for place, changed in changes.items():
            old = self.rows[place]
            assert old.row is not None
            self._stand(place, Version(self.writes, {**old.row, **changed}, old.ordering, partial))

    def replace(self, batch: Iterable[Row], paths: Iterable[str] | None) -> None:
        """The rows of whole partitions, or of the table."""
        self.writes += 1
        gone = None if paths is None else set(paths)
        for known in (self.rows, self.story):
            for place in [place for place in known if gone is None or place[0] in gone]:
                del known[place]
        for row, forced in self._folded(batch):
            self._put(row, forced)

    def settle(self, shown: Mapping[Place, Version]) -> None:
        """A compaction kept what real Hudi showed."""
        self.rows = dict(shown)
        self.story = {place: [version] for place, version in shown.items()}

    # ------------------------------------------------------------------ pieces
    def _folded(self, batch: Iterable[Row]) -> Iterator[tuple[Row, bool]]:
        """One version per key, and whether a delete before it in the batch clears the way."""
        found: dict[Any, tuple[Row, bool]] = {}
        for row in batch:
            place = self.place(row)
            identity = place[1] if self.kind.is_global else place
            known = found.get(identity)
            if known is None or not self.kind.by_event_time or _is_unordered(row):
                found[identity] = (row, _is_unordered(row))
            elif _is_unordered(known[0]) or self.kind.ordering_of(row) >= self.kind.ordering_of(known[0]):
                found[identity] = (row, known[1])
        yield from found.values()

    def _put(self, row: Row, forced: bool) -> None:
        place, there = self.place(row), self.where_is(row)
        ordering = self.kind.ordering_of(row)
        if forced:
            self._drop(there or place)
            if _is_unordered(row):
                return
        old = self.rows.get(there) if there is not None else None
        if old is not None and self.kind.by_event_time and old.ordering is not None and ordering < old.ordering:
            at = there if there is not None and (there == place or row[IS_DELETED]) else place
            if at in self.story:
                self.story[at].append(Version(self.writes, None if row[IS_DELETED] else row, ordering))
            return
        if row[IS_DELETED]:
            at = there or place
            self.rows.pop(at, None)
            self.story.setdefault(at, []).append(Version(self.writes, None, ordering))
            return
        if there is not None and there != place:
            self._drop(there)
        self._stand(place, Version(self.writes, row, ordering))

    def _drop(self, place: Place) -> None:
        self.rows.pop(place, None)
        if place in self.story:
            self.story[place].append(Version(self.writes, None))

    def _stand(self, place: Place, version: Version) -> None:
        self.rows[place] = version
        self.story.setdefault(place, []).append(version)


def _is_unordered(row: Row) -> bool:
    return bool(row[IS_DELETED]) and row["ts"] is None
