"""One file slice of the metadata table, read by key: base HFile and log blocks, folded per key.

A slice is a stack of layers, oldest first: entries (an HFile, on its own or inside a log block) or keys that a delete
block removed. A look-up reads the keys from every layer and merges the records with `merge_records`; no layer is read
as a whole unless a prefix or all keys are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.datafile.log_file import hfile_reader, open_log_file, read_block
from lakebed.datafile.log_scan import scan_slice
from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.format.avro.container import load_schema
from lakebed.format.hfile.reader import HFileReader
from lakebed.format.log.block import BlockKind, LogBlock
from lakebed.format.metadata.payload import decode_record
from lakebed.format.metadata.records import MetadataRecord, merge_records
from lakebed.model.files import FileSlice
from lakebed.runner import Runner
from lakebed.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class _Entries:
    """Records of a base file or of a log block."""

    reader: HFileReader
    schema: Any
    file: str


@dataclass(frozen=True, slots=True)
class _Deletes:
    """Keys that a delete block removed."""

    keys: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class GroupReader:
    """The newest slice of one file group, opened once for many look-ups."""

    layers: tuple[_Entries | _Deletes, ...]

    @classmethod
    def open(
        cls, storage: Storage, file_slice: FileSlice, is_committed: Callable[[str], bool], runner: Runner
    ) -> GroupReader:
        """Open the committed files of a slice. A damaged log of a committed write is an error and is not skipped."""
        base = file_slice.base_file
        scanned = runner.map(lambda log: open_log_file(storage, log), file_slice.log_files, label="open logs")
        scan = scan_slice(scanned, is_committed, base_instant_time=base.requested_time if base else None)
        blocks = [run.block for run in scan.require_intact().runs]
        layers = list(runner.map(lambda block: _layer(storage, block), blocks, label="open logs"))
        if base is not None:
            reader = HFileReader(_ranged(storage, base.path), base.size, base.path)
            layers.insert(0, _entries(reader, None, base.path))
        return cls(tuple(layers))

    def lookup(self, keys: Sequence[bytes]) -> dict[bytes, MetadataRecord]:
        """The records of those of the keys that are there."""
        ordered = sorted(keys)
        return self._fold(lambda reader: reader.get_many(ordered).items())

    def prefix(self, prefix: bytes) -> dict[bytes, MetadataRecord]:
        """All records whose key starts with the prefix."""
        return self._fold(lambda reader: reader.prefix(prefix))

    def _fold(self, read: Callable[[HFileReader], Iterable[tuple[bytes, bytes]]]) -> dict[bytes, MetadataRecord]:
        found: dict[bytes, MetadataRecord] = {}
        for layer in self.layers:
            if isinstance(layer, _Deletes):
                for key in layer.keys & found.keys():
                    del found[key]
                continue
            for key, value in read(layer.reader):
                merged = merge_records(found.get(key), decode_record(key, value, layer.schema, layer.file))
                if merged is None:
                    found.pop(key, None)
                else:
                    found[key] = merged
        return found


def _layer(storage: Storage, block: LogBlock) -> _Entries | _Deletes:
    """What a log block adds to the stack."""
    if block.kind is BlockKind.HFILE_DATA:
        return _entries(hfile_reader(storage, block), block.schema_json, block.file)
    if block.kind is BlockKind.DELETE:
        batches = read_block(storage, block)
        return _Deletes(
            frozenset(key.encode() for batch in batches for key in batch.column(0).to_pylist() if key is not None)
        )
    raise UnsupportedFormat(
        f"a log of the metadata table holds a block of kind {block.kind.name}", file=block.file, offset=block.offset
    )


def _entries(reader: HFileReader, schema_json: str | None, file: str) -> _Entries:
    schema = schema_json if schema_json is not None else reader.file_info.get(b"schema")
    if schema is None:
        raise CorruptTable("the records have no schema", file=file)
    return _Entries(reader, load_schema(schema, file), file)


def _ranged(storage: Storage, path: str) -> Callable[[int, int], bytes]:
    return lambda offset, length: storage.read_ranges(path, [(offset, length)])[0]
