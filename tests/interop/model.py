"""A table as a dictionary: what every reader must answer, folded in plain Python.

The rule is copy-on-write's: each write meets what was there before it, in commit order. A merge-on-read table is the
same fold with a memory: a key is a base version and the versions logged since, for two things depend on which is which.
Tombstones with an ordering value live in logs until a compaction, and real Hudi folds the logs *before* the base.

    key -> Cell(base, log)      fold_up:    ((base + log1) + log2)      what lakebed answers
                                logs_first: base + (log1 + log2)        what Hudi answers, and what its compaction keeps

The model also knows where Hudi's Spark writer puts a row, as far as answers depend on it: an update goes to the log, a
new key to a base file, and with the bucket index to the log once the bucket has a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .operations import AddColumn, Operation, Row, Service, TableShape, Write

Key = tuple[str, str]  # partition path, record key


@dataclass(frozen=True, slots=True)
class Version:
    """One appearance of a key in one write. `row` is None for a delete; `ordering` is None for a delete by key.

    A log compaction writes its own number into `write`; `covers` then is the newest write that its block stands for.
    """

    write: int
    ordering: int | None
    row: Row | None
    covers: int = 0

    @property
    def is_delete(self) -> bool:
        return self.row is None


@dataclass(frozen=True, slots=True)
class Cell:
    """A key in a file group: its version in the base file, and those logged since, oldest first.

    `planned` of the logged versions are covered by a compaction that is planned but has not run.
    """

    base: Version | None = None
    log: tuple[Version, ...] = ()
    planned: int = 0


def java_hash(text: str) -> int:
    """Java's String.hashCode."""
    units = text.encode("utf-16-be")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[i : i + 2])) & 0xFFFFFFFF
    return value


def bucket_of(key: str, buckets: int) -> int:
    """Where Hudi's simple bucket index puts a single-field key."""
    return ((31 + java_hash(key)) & 0x7FFFFFFF) % buckets


@dataclass
class Model:
    """The state of one table after a sequence of operations; `writes` counts what got an instant of its own."""

    shape: TableShape
    columns: list[str] = field(default_factory=list)
    cells: dict[Key, Cell] = field(default_factory=dict)
    groups: set[tuple[str, int]] = field(default_factory=set)  # buckets that have a file
    writes: int = 0

    def __post_init__(self) -> None:
        self.columns = self.columns or [name for name, _ in self.shape.columns()]

    # -- the merge rule

    def winner(self, old: Version | None, new: Version) -> Version:
        """Which of two versions of a key stands; `new` comes later in commit order."""
        if old is None or new.ordering is None or old.ordering is None:
            return new
        late = self.shape.event_time and new.ordering < old.ordering
        stands, lost = (old, new) if late else (new, old)
        if self.shape.fills and stands.row is not None and lost.row is not None:
            filled = {name: lost.row.get(name) if value is None else value for name, value in stands.row.items()}
            return replace(stands, row={**lost.row, **filled})
        return stands

    def _fold(self, versions: tuple[Version, ...], start: Version | None = None) -> Version | None:
        for version in versions:
            start = self.winner(start, version)
        return start

    def fold_up(self, cell: Cell) -> Version | None:
        return self._fold(cell.log, cell.base)

    def logs_first(self, cell: Cell) -> Version | None:
        logged = self._fold(cell.log)
        return cell.base if logged is None else self.winner(cell.base, logged)

    # -- answers

    def snapshot(self, fold: Callable[[Cell], Version | None] | None = None) -> dict[Key, Version]:
        """The live rows. `fold` defaults to the rule lakebed follows."""
        found = ((key, (fold or self.fold_up)(cell)) for key, cell in self.cells.items())
        return {key: version for key, version in found if version is not None and not version.is_delete}

    def hudi_snapshot(self) -> dict[Key, Version]:
        return self.snapshot(self.logs_first)

    def read_optimized(self) -> dict[Key, Version]:
        return self.snapshot(lambda cell: cell.base)

    def incremental(self, after: int) -> dict[Key, Version]:
        """Rows of the snapshot whose winning version was written after write number `after`."""
        return {key: version for key, version in self.snapshot().items() if version.write > after}

    def hudi_incremental(self, after: int) -> dict[Key, Version]:
        """Hudi drops versions outside the range first and merges what is left.

        Base rows go by their commit time, log-compacted blocks by the writes they cover.
        """

        def fold(cell: Cell) -> Version | None:
            base = cell.base if cell.base is not None and cell.base.write > after else None
            return self.logs_first(Cell(base, tuple(v for v in cell.log if (v.covers or v.write) > after)))

        return self.snapshot(fold)

    def hudi_incremental_known(self, after: int) -> bool:
        """Whether `hudi_incremental` is certain. What a log-compacted block covers is a matter of its file group, which
        the model knows for buckets; elsewhere it knows the key's own writes, and that the compaction came right after
        the newest write.
        """
        logged = (version for cell in self.cells.values() for version in cell.log if version.covers)
        return self.shape.is_bucket or all(after < v.covers or after >= v.write - 1 for v in logged)

    # -- operations

    def apply(self, operation: Operation) -> None:
        """Fold one operation in. Services are the ones of real Hudi."""
        if isinstance(operation, AddColumn):
            self.columns.append(operation.name)
        elif isinstance(operation, Service):
            self._serve(operation.kind)
        else:
            self._write(operation)
            for kind in operation.riders:
                self._serve(kind)

    def _write(self, write: Write) -> None:
        self.writes += 1
        if write.kind in ("insert_overwrite", "insert_overwrite_table", "delete_partition"):
            gone = None if write.kind == "insert_overwrite_table" else write.touched_partitions(self.shape)
            self.cells = {key: cell for key, cell in self.cells.items() if gone is not None and key[0] not in gone}
            self.groups = {group for group in self.groups if gone is not None and group[0] not in gone}
        fresh = set(self.groups)  # a bucket that this write opens takes all its rows into the base file
        for row in self._combined(write):
            key = self.shape.key_of(row)
            group = (key[0], bucket_of(key[1], self.shape.buckets))
            version = self._version(write, row)
            self._put(key, version, has_group=group in fresh)
            self.groups.add(group)

    def _combined(self, write: Write) -> list[Row]:
        """One row per key: Hudi keeps the one with the greatest ordering value before it writes."""
        kept: dict[Key, Row] = {}
        if write.kind == "delete_partition":
            return []
        for row in write.rows:
            key = self.shape.key_of(row)
            if key not in kept or row[self.shape.ordering] >= kept[key][self.shape.ordering]:
                kept[key] = row
        return list(kept.values())

    def _version(self, write: Write, row: Row) -> Version:
        if write.kind == "delete":
            return Version(self.writes, None, None)
        ordering = row[self.shape.ordering]
        if row.get("_hoodie_is_deleted"):
            return Version(self.writes, ordering, None)
        return Version(self.writes, ordering, {name: row.get(name) for name in self.columns})

    def _put(self, key: Key, version: Version, *, has_group: bool) -> None:
        cell = self.cells.get(key, Cell())
        known = cell.base is not None or bool(cell.log)
        if self.shape.index_forgets_deletes and (state := self.fold_up(cell)) is not None and state.is_delete:
            cell, known = Cell(), False
        if self.shape.merges_when_tagging and known:
            version = replace(self.winner(self.logs_first(cell), version), write=version.write, covers=0)
        logged = self.shape.is_mor and (has_group if self.shape.is_bucket else known)
        if logged:
            if version.ordering is None and version.is_delete and not known:
                return  # a delete of a key that the index does not know is dropped
            self.cells[key] = replace(cell, log=(*cell.log, version))
            return
        standing = self.winner(cell.base, version)
        self._settle(key, standing)

    def _settle(self, key: Key, version: Version | None, log: tuple[Version, ...] = ()) -> None:
        """A base file holds no deletes."""
        base = None if version is None or version.is_delete else version
        if base is None and not log:
            self.cells.pop(key, None)
        else:
            self.cells[key] = Cell(base, log)

    def _serve(self, kind: str) -> None:
        if kind in ("plan_compact", "compact"):
            self.cells = {key: replace(cell, planned=len(cell.log)) for key, cell in self.cells.items()}
        if kind in ("run_compact", "compact"):
            for key, cell in list(self.cells.items()):
                kept = self.logs_first(replace(cell, log=cell.log[: cell.planned]))
                self._settle(key, kept, cell.log[cell.planned :])
        if kind in ("run_cluster", "cluster"):
            for key, cell in list(self.cells.items()):
                self._settle(key, self.logs_first(cell))
        if kind == "log_compact":
            self._log_compact()

    def _log_compact(self) -> None:
        """One version per key and file group, under an instant of its own."""
        self.writes += 1
        newest: dict[tuple[str, object], int] = {}
        for key, cell in self.cells.items():
            for version in cell.log:
                group = self._block_of(key)
                newest[group] = max(newest.get(group, 0), version.covers or version.write)
        for key, cell in list(self.cells.items()):
            folded = self._fold(cell.log)
            if folded is not None:
                covers = newest[self._block_of(key)]
                self.cells[key] = replace(cell, log=(replace(folded, write=self.writes, covers=covers),))

    def _block_of(self, key: Key) -> tuple[str, object]:
        """What shares a compacted block with a key, as far as the model knows: its bucket, or nothing else."""
        return (key[0], bucket_of(key[1], self.shape.buckets) if self.shape.is_bucket else key[1])
