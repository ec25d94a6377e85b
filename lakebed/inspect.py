"""The parts of a table as Arrow tables: timeline, slices, one commit, settings.

Everything here is for people and tools that inspect a table; reads and writes do not depend on it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pyarrow as pa

from lakebed.config.option import options_of
from lakebed.config.read_options import ReadOptions, TableConfig
from lakebed.errors import InvalidRequest
from lakebed.model.actions import ActionBody, CommitMetadata
from lakebed.model.instant import Instant
from lakebed.read.plan import choose_lister
from lakebed.read.time_range import resolve_as_of
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView

TIMELINE_SCHEMA = pa.schema(
    [
        pa.field("instant", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("completion", pa.string()),
        pa.field("operation", pa.string()),
        pa.field("archived", pa.bool_(), nullable=False),
    ]
)
SLICES_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("base_instant", pa.string(), nullable=False),
        pa.field("base_file", pa.string()),
        pa.field("base_bytes", pa.int64(), nullable=False),
        pa.field("log_files", pa.int64(), nullable=False),
        pa.field("log_bytes", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("logs", pa.list_(pa.string()), nullable=False),
    ]
)
COMMIT_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        pa.field("previous", pa.string()),
        pa.field("writes", pa.int64(), nullable=False),
        pa.field("inserts", pa.int64(), nullable=False),
        pa.field("updates", pa.int64(), nullable=False),
        pa.field("deletes", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("replaced", pa.bool_(), nullable=False),
    ]
)
CONFIG_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.string()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("meaning", pa.string()),
    ]
)


@dataclasses.dataclass(frozen=True, slots=True)
class Inspect:
    """Inspection of one table at one moment; get it as `t.inspect`."""

    client: MetaClient
    options: ReadOptions

    def timeline(self, history: bool = False) -> pa.Table:
        """Instants of the active timeline (and of the archived one), by requested time."""
        rows = [self._timeline_row(instant, archived=False) for instant in self.client.timeline]
        if history:
            known = {(row["instant"], row["action"]) for row in rows}
            archived = [self._timeline_row(instant, archived=True) for instant in self.client.history.timeline()]
            rows = [row for row in archived if (row["instant"], row["action"]) not in known] + rows
        return pa.Table.from_pylist(rows, schema=TIMELINE_SCHEMA)

    def _timeline_row(self, instant: Instant, *, archived: bool) -> dict[str, Any]:
        body = None if archived else self.client.body(instant)
        return {
            "instant": instant.requested_time,
            "action": str(instant.action),
            "state": str(instant.state),
            "completion": instant.completion_time,
            "operation": getattr(body, "operation", None),
            "archived": archived,
        }

    def file_slices(self, as_of: str | dt.datetime | dt.date | None = None) -> pa.Table:
        """The slice of every file group that a snapshot reads, now or as of a time."""
        at = resolve_as_of(self.client, as_of).at
        lister, _ = choose_lister(self.client, self.options)
        view = FileSystemView.of(self.client, lister)
        rows = []
        for partition in sorted(view.partitions()):
            for file_slice in view.slices(partition, at):
                base = file_slice.base_file
                rows.append(
                    {
                        "partition": partition,
                        "file_id": file_slice.file_group.file_id,
                        "base_instant": file_slice.base_instant_time,
                        "base_file": base.name if base else None,
                        "base_bytes": base.size if base else 0,
                        "log_files": len(file_slice.log_files),
                        "log_bytes": sum(log.size for log in file_slice.log_files),
                        "bytes": file_slice.size,
                        "logs": [log.name for log in file_slice.log_files],
                    }
                )
        return pa.Table.from_pylist(rows, schema=SLICES_SCHEMA)

    def commit(self, instant: str) -> pa.Table:
        """What one completed write did, file by file; file groups it replaced come last."""
        body = self.body(instant)
        if not isinstance(body, CommitMetadata):
            raise InvalidRequest(
                f"{instant} is no completed write", hint="`t.inspect.body(instant)` shows other actions as values."
            )
        rows: list[dict[str, Any]] = [
            {
                "partition": partition,
                "file_id": stat.file_id,
                "path": stat.path,
                "previous": stat.prev_commit if stat.prev_commit != "null" else None,
                "writes": stat.num_writes,
                "inserts": stat.num_inserts,
                "updates": stat.num_updates,
                "deletes": stat.num_deletes,
                "bytes": stat.file_size,
                "replaced": False,
            }
            for partition, stats in sorted(body.stats.items())
            for stat in stats
        ]
        nothing = dict.fromkeys(("writes", "inserts", "updates", "deletes", "bytes"), 0)
        for partition, file_ids in sorted(body.replaced_file_ids.items()):
            for file_id in file_ids:
                gone = {"partition": partition, "file_id": file_id, "path": None, "previous": None, "replaced": True}
                rows.append({**gone, **nothing})
        return pa.Table.from_pylist(rows, schema=COMMIT_SCHEMA)

    def body(self, instant: str) -> ActionBody | None:
        """The plan or report of an action, as a value of `lakebed.model.actions`; by requested or completion time."""
        for known in self.client.full_timeline:
            if instant in (known.requested_time, known.completion_time):
                return self.client.body(known)
        raise InvalidRequest(f"there is no instant {instant}", hint="`t.inspect.timeline(history=True)` lists them.")

    def config(self) -> pa.Table:
        """Every setting of the table that is set or that lakebed knows, and where its value comes from."""
        properties = dict(self.client.config.properties)
        rows: list[dict[str, Any]] = []
        for name, declared in options_of(TableConfig).items():
            written = next((key for key in declared.keys if key in properties), None)
            value = getattr(self.client.config, name)
            text = properties.pop(written) if written else (None if value is None else declared.kind.render(value))
            source = "hoodie.properties" if written else "default"
            rows.append({"key": written or declared.key, "value": text, "source": source, "meaning": declared.sentence})
        rows += [
            {"key": key, "value": value, "source": "hoodie.properties", "meaning": None}
            for key, value in properties.items()
        ]
        return pa.Table.from_pylist(sorted(rows, key=lambda row: row["key"]), schema=CONFIG_SCHEMA)
