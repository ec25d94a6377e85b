"""Tables made by hand, straight from the format: sorted base files, native logs, v1 logs, in one file group.

Benchmarks need sizes that golden tables do not have, and tests need native logs (table version 10), which no released
Hudi writes yet. Nothing here goes through a write path, so a mistake there cannot hide behind its own twin here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.format.log.block import BlockKind, Header
from lakebed.format.log.v1 import encode_block
from lakebed.format.log.v2 import footer_entries
from lakebed.format.table_files import render_properties, table_checksum
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import CommitMetadata, WriteStat
from lakebed.model.instant import Action, State
from lakebed.model.schema import META_FIELD_NAMES, table_avro, with_meta_fields

FILE_ID = "00000000-0000-4000-8000-000000000000-0"
TOKEN = "0-0-0"
KEY = META_FIELD_NAMES[2]


@dataclass
class HandmadeTable:
    """One file group that grows by `base`, `log` and `deletes`, each a commit of its own."""

    root: Path
    schema: pa.Schema
    key: str = "id"
    ordering: tuple[str, ...] = ("ts",)
    layout: str = "lsm_tree"
    version: int = 10
    properties: Mapping[str, str] = field(default_factory=dict)
    base_row_group: int = 128 * 1024
    log_row_group: int = 16 * 1024
    clock: int = 20260101000000000

    def __post_init__(self) -> None:
        props = {
            "hoodie.table.name": self.root.name,
            "hoodie.table.type": "MERGE_ON_READ",
            "hoodie.table.version": str(self.version),
            "hoodie.table.initial.version": str(self.version),
            "hoodie.timeline.layout.version": "2",
            "hoodie.table.base.file.format": "PARQUET",
            "hoodie.table.recordkey.fields": self.key,
            "hoodie.table.keygenerator.type": "NON_PARTITION",
            "hoodie.record.merge.mode": "EVENT_TIME_ORDERING" if self.ordering else "COMMIT_TIME_ORDERING",
            "hoodie.table.ordering.fields": ",".join(self.ordering),
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.table.storage.layout": self.layout,
            **self.properties,
        }
        props["hoodie.table.checksum"] = str(table_checksum(props))
        (self.root / ".hoodie" / "timeline" / "history").mkdir(parents=True)
        (self.root / ".hoodie" / "hoodie.properties").write_bytes(render_properties(props, ["made by hand"]))
        (self.root / ".hoodie_partition_metadata").write_text(f"commitTime={self.clock}\npartitionDepth=0\n")

    # ------------------------------------------------------------------ commits
    def base(self, rows: pa.Table, *, is_sorted: bool = True) -> str:
        """Replace the slice's base file by these rows (which are sorted by key here if asked)."""
        requested_time = self._begin()
        name = f"{FILE_ID}_{TOKEN}_{requested_time}.parquet"
        self._parquet(
            self.root / name, self._stored(rows, requested_time, name, is_sorted), {}, is_sorted, self.base_row_group
        )
        return self._commit(requested_time, Action.COMMIT, [name])

    def log(
        self,
        rows: pa.Table | None = None,
        deletes: pa.Table | None = None,
        *,
        native: bool = True,
        is_sorted: bool = True,
        header: Mapping[Header, str] | None = None,
        requested_time: str | None = None,
        inline_name: bool = False,
    ) -> str:
        """One delta: data rows, deletes (key and ordering columns), or both; native files or one v1 file."""
        requested_time = requested_time or self._begin()
        extra = dict(header or {})
        data = None if rows is None else self._stored(rows, requested_time, FILE_ID, is_sorted)
        names = []
        if native:
            for kind, word, table in ((BlockKind.PARQUET_DATA, "log", data), (BlockKind.DELETE, "deletes", deletes)):
                if table is not None:
                    number = len(names) + 1
                    name = (
                        f".{FILE_ID}_{requested_time}.log.{number}_{TOKEN}"
                        if inline_name
                        else f"{FILE_ID}_{TOKEN}_{requested_time}_1.{word}.parquet"
                    )
                    table = table if kind is BlockKind.PARQUET_DATA else self._delete_rows(table)
                    entries = footer_entries(kind, {Header.INSTANT_TIME: requested_time, **extra})
                    self._parquet(self.root / name, table, entries, is_sorted, self.log_row_group)
                    names.append(name)
        else:
            name = f".{FILE_ID}_{requested_time}.log.1_{TOKEN}"
            blocks = b""
            if data is not None:
                sink = pa.BufferOutputStream()
                self._parquet(sink, data, {}, is_sorted, self.log_row_group)
                schema = json.dumps(table_avro(with_meta_fields(self.schema), self.root.name))
                full = {Header.INSTANT_TIME: requested_time, Header.SCHEMA: schema, **extra}
                blocks += encode_block(BlockKind.PARQUET_DATA, full, sink.getvalue().to_pybytes())
            (self.root / name).write_bytes(blocks)
            names.append(name)
        return self._commit(requested_time, Action.DELTA_COMMIT, names)

    def _begin(self) -> str:
        self.clock += 1000
        return str(self.clock)

    def _commit(self, requested_time: str, action: Action, names: Sequence[str]) -> str:
        stats = tuple(
            WriteStat(FILE_ID, name, "", prev_commit="null", num_writes=1, file_size=(self.root / name).stat().st_size)
            for name in names
        )
        schema = json.dumps(table_avro(self.schema, self.root.name))
        body = CommitMetadata("UPSERT", {"": stats}, {"schema": schema})
        timeline = self.root / ".hoodie" / "timeline"
        (timeline / f"{requested_time}.{action}.requested").write_bytes(b"")
        completed = f"{requested_time}_{int(requested_time) + 500}.{action}"
        (timeline / completed).write_bytes(encode_body(body, action, State.COMPLETED))
        return requested_time

    # ------------------------------------------------------------------ files
    def _stored(self, rows: pa.Table, requested_time: str, file_name: str, is_sorted: bool) -> pa.Table:
        if is_sorted:
            rows = rows.sort_by(self.key)
        count = rows.num_rows
        keys = rows.column(self.key).cast(pa.string())
        numbers = pa.array(np.arange(count)).cast(pa.string())
        sequence = pc.binary_join_element_wise(_same(f"{requested_time}_0", count), numbers, "_")
        meta = [_same(requested_time, count), sequence, keys, _same("", count), _same(file_name, count)]
        return pa.table(
            [*meta, *(rows.column(item.name) for item in self.schema)],
            schema=pa.schema([*(pa.field(name, pa.string()) for name in META_FIELD_NAMES), *self.schema]),
        )

    def _delete_rows(self, deletes: pa.Table) -> pa.Table:
        keys = deletes.column(self.key).cast(pa.string())
        columns = {KEY: keys}
        for name in self.ordering:
            kind = self.schema.field(name).type
            columns[name] = (
                deletes.column(name).cast(kind) if name in deletes.column_names else pa.nulls(len(keys), kind)
            )
        return pa.table(columns).sort_by(KEY)

    def _parquet(
        self,
        where: Path | pa.BufferOutputStream,
        table: pa.Table,
        entries: Mapping[str, str],
        is_sorted: bool,
        row_group: int,
    ) -> None:
        metadata = {**entries, **({"lakebed.sorted": "utf8"} if is_sorted else {})}
        schema = table.schema.remove_metadata()
        order = pq.SortingColumn.from_ordering(schema, [(KEY, "ascending")]) if is_sorted else None
        with pq.ParquetWriter(
            where,
            schema,
            compression="zstd",
            sorting_columns=order,
            store_schema=False,
            use_dictionary=_dictionary_columns(table),
        ) as sink:
            sink.write_table(table.replace_schema_metadata(None), row_group_size=row_group)
            sink.add_key_value_metadata(metadata)


def _same(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _dictionary_columns(table: pa.Table) -> list[str]:
    """Columns with few distinct values in a sample."""
    sample = table.slice(0, 2000)
    return [name for name in table.column_names if len(sample.column(name).unique()) < max(2, sample.num_rows // 4)]
