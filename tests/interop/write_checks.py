"""The judgement of a table that lakebed and Hudi write in turns: the model, lakebed, real Hudi and hudi-rs.

lakebed  == model     always: snapshot, incremental
Hudi     == lakebed   in all columns, the five meta columns included: snapshot, read-optimized, incremental
hudi-rs  == lakebed   snapshot
but for keys and kinds in `differences`, where what they may show instead is said and checked
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakebed

from .checks import BEGIN, QUERY_TYPE, told
from .client import HudiPeer
from .differences import FILLED, decoded, hudi_rs_limit, partial_rows_alone, written_difference
from .hudi_writer import Done
from .kinds import Kind
from .rows import (
    COMMIT_TIME,
    FILE_NAME,
    META_COLUMNS,
    PARTITION_PATH,
    RECORD_KEY,
    Answer,
    from_arrow,
    from_json,
    plain,
    row_difference,
    schema_difference,
)
from .rs_client import HudiRs
from .written_model import Place, Version, WrittenModel


@dataclass
class WriteJudge:
    """Compares the readers of one table."""

    hudi: HudiPeer
    rs: HudiRs
    path: Path
    kind: Kind
    model: WrittenModel
    instants: list[Done]
    kinds: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        schema = self.kind.schema()
        self.kinds = {item.name: item.type for item in schema}

    # ------------------------------------------------------------------ snapshots
    def ours(self) -> Iterator[str]:
        """What lakebed reads is what the model says."""
        yield told("lakebed's snapshot", row_difference(self.answer(self.model.rows), self._ours()))

    def everybody(self) -> Iterator[str]:
        """All snapshots, and the read-optimized answers."""
        ours = self._ours()
        yield told("lakebed's snapshot", row_difference(self.answer(self.model.rows), ours))
        theirs = self._theirs()
        yield from self._each_other("Hudi's snapshot", ours, theirs, self._special(0))
        yield from self._hudi_rs(ours)
        yield from self.read_optimized(ours)

    def read_optimized(self, snapshot: Answer) -> Iterator[str]:
        """Base files only: the snapshot on copy-on-write, else some version of each key that was current once."""
        if not self.kind.is_mor:
            theirs = self._theirs({QUERY_TYPE: "read_optimized"})
            yield from self._each_other("Hudi's read-optimized answer", snapshot, theirs, {})
            return
        ours = self._typed(from_arrow(lakebed.open(self.path).scan(query="read_optimized").to_arrow()))
        theirs = self._theirs({QUERY_TYPE: "read_optimized"})
        yield from self._each_other("Hudi's read-optimized answer", ours, theirs, {})
        for place, row in _by_place(theirs).items():
            if row not in self._versions(place):
                yield f"the read-optimized row of {place} is no version that was ever written: {row}"

    def incremental(self, after: int) -> Iterator[str]:
        """What came after write number `after`; rows without meta fields do not know."""
        if not self.kind.meta_fields:
            return
        start = self.instants[after - 1].completion
        ours = from_arrow(lakebed.open(self.path).incremental(start=start).to_arrow())
        wanted = {place: version for place, version in self.model.rows.items() if version.write > after}
        yield told(f"lakebed's incremental answer after {start}", row_difference(self.answer(wanted), ours))
        if partial_rows_alone(self.model, after):
            return
        theirs = decoded(self.kind, self._theirs({QUERY_TYPE: "incremental", BEGIN: start}))
        special = self._special(after)
        yield from self._each_other(f"Hudi's incremental answer after {start}", ours, theirs, special)

    def shown_by_hudi(self) -> dict[Place, Version]:
        """The version of every key that Hudi shows, to follow what its compaction keeps."""
        found = {}
        for place, row in _by_place(self._theirs()).items():
            found[place] = self._version_shown(place, json.loads(row))
        return found

    def _version_shown(self, place: Place, cells: list[Any]) -> Version:
        """The version that a reader's row is; one that is filled from several is made up."""
        story = [version for version in reversed(self.model.story[place]) if version.row is not None]
        for version in story:
            if self._shown(place, version) == json.dumps(cells, sort_keys=True):
                return version
        [stands] = [version for version in story if self.instants[version.write - 1].requested_time == cells[0]]
        row = {}
        for name, cell in zip(self.kinds, cells[3:], strict=True):
            values = [version.row[name] for version in story if version.row is not None]
            row[name] = next(value for value in values if plain(value, self.kinds[name]) == cell)
        return Version(stands.write, row, stands.ordering)

    # ------------------------------------------------------------------ pieces
    def answer(self, versions: Mapping[Place, Version]) -> Answer:
        """Rows of the model in the notation of the readers."""
        shown = (COMMIT_TIME, RECORD_KEY, PARTITION_PATH, *self.kinds)
        rows = tuple(tuple(self._cells(place, version)) for place, version in versions.items())
        return Answer(shown, ("",) * len(shown), rows)

    def _cells(self, place: Place, version: Version) -> Iterator[Any]:
        assert version.row is not None
        requested_time = self.instants[version.write - 1].requested_time if self.kind.meta_fields else None
        yield from (requested_time, place[1], place[0])
        for name, kind in self.kinds.items():
            yield plain(version.row[name], kind)

    def _shown(self, place: Place, version: Version) -> str:
        return json.dumps([*self._cells(place, version)], sort_keys=True)

    def _versions(self, place: Place) -> set[str]:
        story = self.model.story.get(place, ())
        return {self._shown(place, version) for version in story if version.row is not None}

    def _ours(self) -> Answer:
        return self._typed(from_arrow(lakebed.open(self.path).scan().to_arrow()))

    def _theirs(self, options: Mapping[str, str] | None = None) -> Answer:
        return self._typed(from_json(self.hudi.read(self.path, options)))

    def _typed(self, answer: Answer) -> Answer:
        """Hudi shows the column of a timestamp-based key generator as text; rows without meta fields are dressed."""
        if not self.kind.meta_fields:
            return self._dressed(answer)
        if self.kind.keys != "timestamp" or "at_ms" not in answer.columns:
            return answer
        at = answer.columns.index("at_ms")
        rows = (row if row[at] is None else (*row[:at], int(row[at]), *row[at + 1 :]) for row in answer.rows)
        return Answer(answer.columns, (*answer.types[:at], "bigint", *answer.types[at + 1 :]), tuple(rows))

    def _dressed(self, answer: Answer) -> Answer:
        """Rows that carry no meta fields, with the key and path that their columns make."""
        filled = [row for row in answer.dicts() if any(row.get(name) for name in META_COLUMNS if name != FILE_NAME)]
        assert not filled, f"meta fields are filled: {filled[0]}"
        own = answer.select(name for name in answer.columns if name not in META_COLUMNS)
        rows = tuple(
            (None, self.kind.record_key(row), self.kind.partition_path(row), *row.values()) for row in own.dicts()
        )
        return Answer((COMMIT_TIME, RECORD_KEY, PARTITION_PATH, *own.columns), ("string",) * 3 + own.types, rows)

    def _special(self, after: int) -> dict[Place, str]:
        found = ((place, written_difference(self.model, place, after)) for place in self.model.story)
        return {place: reason for place, reason in found if reason}

    def _each_other(self, what: str, ours: Answer, theirs: Answer, special: Mapping[Place, str]) -> Iterator[str]:
        """All columns where nothing is listed; where something is, a version that was written, or a mix of them."""
        yield told(f"{what}, schema", schema_difference(ours, theirs))

        def is_plain(row: dict[str, Any]) -> bool:
            return (row[PARTITION_PATH], row[RECORD_KEY]) not in special

        yield told(f"{what} against ours", row_difference(ours.where(is_plain), theirs.where(is_plain)))
        for place, row in _by_place(theirs).items():
            known = self._versions(place)
            if place not in special or row in known:
                continue
            columns = zip(*map(json.loads, known), strict=True)
            if special[place] != FILLED or not all(
                cell in values for cell, values in zip(json.loads(row), columns, strict=True)
            ):
                yield f"{what} of {place} ({special[place]}) is no version that was ever written: {row}"

    def _hudi_rs(self, ours: Answer) -> Iterator[str]:
        theirs = self.rs.read(self.path)
        if isinstance(theirs, Answer):
            theirs = self._typed(theirs) if theirs.columns else Answer(ours.columns, ours.types, ())
            found = next(filter(None, self._each_other("hudi-rs", ours, theirs, self._special(0))), "")
        else:
            found = theirs
        limit = hudi_rs_limit(self.model)
        if limit is None:
            yield told("hudi-rs", found)
        elif limit.shows not in found:
            yield f"hudi-rs was to show {limit.shows!r} ({limit.reason}), and shows: {found or 'the same rows'}"


def _by_place(answer: Answer) -> dict[Place, str]:
    """Rows by key, as text: the commit time, key, path and own columns."""
    places = [answer.columns.index(name) for name in (PARTITION_PATH, RECORD_KEY)]
    skipped = {"_hoodie_commit_seqno", "_hoodie_file_name"}
    kept = [at for at, name in enumerate(answer.columns) if name not in skipped]
    return {
        (row[places[0]], row[places[1]]): json.dumps([row[at] for at in kept], sort_keys=True) for row in answer.rows
    }
