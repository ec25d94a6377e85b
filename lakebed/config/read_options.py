"""The typed groups of options. `TableConfig` holds a table's own settings, the others hold a caller's choices.

All of them are plain values that turn into `hoodie.*` keys and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakebed.config.memory_plan import DEFAULT_MEMORY, READ_BUFFER
from lakebed.config.merge_settings import MergeMode, PartialUpdateMode
from lakebed.config.option import (
    FLAG,
    NUMBER,
    SIZE,
    bytes_of,
    declared_keys,
    option,
    options_of,
    to_properties,
    warn_unknown,
)
from lakebed.config.table_config import TableConfig, TableVersion
from lakebed.errors import InvalidRequest

__all__ = [
    "WRITE_KEYS",
    "MergeMode",
    "PartialUpdateMode",
    "ReadOptions",
    "TableConfig",
    "TableVersion",
    "bytes_of",
    "known_keys",
]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader may choose."""

    memory: int = option(
        "lakebed.memory", SIZE, DEFAULT_MEMORY, "The ceiling for merging and sorting in one process.", ("memory",)
    )
    read_buffer: int = option(
        "lakebed.read.buffer",
        SIZE,
        READ_BUFFER,
        "How much of each sorted run is read ahead while merging.",
        ("compaction_log_streaming_read_buffer",),
    )
    use_metadata_table: bool = option(
        "hoodie.metadata.enable", FLAG, True, "Whether files are listed from the metadata table where there is one."
    )
    data_skipping: bool = option(
        "hoodie.enable.data.skipping", FLAG, True, "Whether column statistics may rule files out."
    )
    batch_rows: int = option("lakebed.batch.rows", NUMBER, 65_536, "The most rows in a batch that a scan returns.")
    threads: int = option("lakebed.threads", NUMBER, 0, "Threads that read file groups at once; 0 is one per core.")

    def __post_init__(self) -> None:
        if self.memory <= 0 or self.read_buffer <= 0 or self.batch_rows <= 0 or self.threads < 0:
            raise InvalidRequest("memory, read buffer and batch size must be positive, threads not negative")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ReadOptions:
        """Options from `hoodie.*` keys; warns about unknown keys."""
        return cls().override(properties)

    def to_properties(self) -> dict[str, str]:
        return to_properties(self)

    def override(self, options: Mapping[str, str] | ReadOptions | None = None, **named: Any) -> ReadOptions:
        """These options with others on top: an options object or `hoodie.*` keys, then named values that are not None.

        Sizes may be given as text such as "512MB".
        """
        changed = self
        if isinstance(options, ReadOptions):
            changed = options
        elif options is not None and not isinstance(options, Mapping):
            raise InvalidRequest(
                f"options are a mapping of keys to text, not {type(options).__name__}",
                hint='Write options={"lakebed.threads": "2"}.',
            )
        elif options:
            declared = options_of(ReadOptions)
            warn_unknown(options, known_keys(), stacklevel=2)
            changes = {name: one for name, one in declared.items() if any(key in options for key in one.keys)}
            changed = replace(changed, **{name: one.read(options) for name, one in changes.items()})
        values: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        unknown = values.keys() - options_of(ReadOptions).keys()
        if unknown:
            raise InvalidRequest(f"no read option is called {', '.join(sorted(unknown))}")
        for name in values.keys() & {"memory", "read_buffer"}:
            values[name] = bytes_of(values[name])
        return replace(changed, **values) if values else changed


WRITE_KEYS = tuple(
    f"hoodie.datasource.write.{word}"
    for word in (
        "keygenerator.consistent.logical.timestamp.enabled",
        "keygenerator.type",
        "operation",
        "partitionpath.field",
        "precombine.field",
        "recordkey.field",
        "slash.separated.date.partitioning",
        "table.name",
        "table.type",
    )
)
"""Keys of Hudi's Spark source that are read here, besides those that table settings declare."""

_OTHER_KEYS = (
    *WRITE_KEYS,
    "hoodie.bloom.index.parallelism",
    "hoodie.bulkinsert.shuffle.parallelism",
    "hoodie.insert.shuffle.parallelism",
    "hoodie.spark.sql.merge.into.partial.updates",
    "hoodie.upsert.shuffle.parallelism",
    "hoodie.write.complex.keygen.new.encoding",
    "hoodie.write.table.version",
    "lakebed.spark.",
    "hoodie.archivelog.folder",
    "hoodie.bootstrap.base.path",
    "hoodie.datasource.merge.type",
    "hoodie.datasource.query.incremental.format",
    "hoodie.datasource.query.type",
    "hoodie.datasource.read.begin.instanttime",
    "hoodie.datasource.read.end.instanttime",
    "hoodie.deltastreamer.keygen.timebased.",
    "hoodie.keygen.timebased.",
    "hoodie.record.merge.property.",
    "hoodie.table.checksum",
    "hoodie.table.format",
    "hoodie.table.initial.version",
    "hoodie.table.multiple.base.file.formats.enable",
    "hoodie.table.partition_extractor_class",
    "hoodie.timeline.layout.version",
    "lakebed.format.draft",
)


def known_keys() -> frozenset[str]:
    """Every key that lakebed reads; one that ends in a dot stands for all keys below it."""
    return declared_keys() | frozenset(_OTHER_KEYS)
