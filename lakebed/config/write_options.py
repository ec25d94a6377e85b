"""The options of writers: `FileOptions` of single files, `WriteOptions` of a whole write.

File writers take the smaller group, so that a table service can pass them its own options; `WriteOptions` extends it,
and one `hoodie.*` dict configures both. A new option is one field, in the class that is used by the code that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from lakebed.config.option import (
    FLAG,
    NUMBER,
    SIZE,
    Kind,
    bytes_of,
    choice,
    choice_of,
    option,
    options_of,
    to_properties,
)
from lakebed.errors import InvalidRequest


class Codec(StrEnum):
    """Compression inside Parquet files, by Arrow's names; every one of them is read by Hudi 1.2 and by hudi-rs."""

    ZSTD = "zstd"
    GZIP = "gzip"
    SNAPPY = "snappy"
    NONE = "none"


class LogBlockFormat(StrEnum):
    """The format of rows in a data block of a version 1 log. Only Parquet blocks can be marked as sorted."""

    PARQUET = "parquet"
    AVRO = "avro"


class LogNaming(StrEnum):
    """Names and delete schema of native logs: Hudi's development line, or RFC-103's unchanged names."""

    NATIVE = "native"
    INLINE = "inline"


class Duplicates(StrEnum):
    """What an insert does with rows whose key is in the table already."""

    NONE = "none"
    DROP = "drop"
    FAIL = "fail"


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise ValueError("not between 0 and 1")
    return value


FRACTION = Kind("fraction", _fraction, repr)
_CODECS = {
    "zstd": Codec.ZSTD,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
}


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options of data files."""

    # --- Parquet, in base files and logs
    codec: Codec = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.parquet.compression.codec", choice(_CODECS), Codec.ZSTD, "Compression of Parquet pages."
    )
    codec_level: int | None = option(
        "lakebed.parquet.compression.level", NUMBER, None, "The codec's level; empty is the codec's own default."
    )
    page_size: int = option("hoodie.parquet.page.size", SIZE, 1 << 20, "The size of a Parquet page before compression.")
    row_group_size: int = option(
        "hoodie.parquet.block.size", SIZE, 120 << 20, "The most bytes of rows in a row group of a base file."
    )
    row_group_rows: int = option(
        "lakebed.parquet.row.group.rows", NUMBER, 128 << 10, "The most rows in a row group of a base file."
    )
    dictionary: bool = option(
        "hoodie.parquet.dictionary.enabled",
        FLAG,
        True,
        "Whether columns with few distinct values in a sample are written with a dictionary.",
    )
    max_file_size: int = option(
        "hoodie.parquet.max.file.size", SIZE, 120 << 20, "The size at which the next base file or native log begins."
    )

    # --- the bloom filter in the footer of base files
    bloom_filter: bool | None = option(
        "hoodie.parquet.bloom.filter.enabled",
        FLAG,
        None,
        "Whether base files carry a bloom filter of their keys; empty means where the table's index reads it.",
    )
    bloom_entries: int = option(
        "hoodie.index.bloom.num_entries", NUMBER, 60_000, "The keys a bloom filter is made for."
    )
    bloom_error_rate: float = option(
        "hoodie.index.bloom.fpp", FRACTION, 1e-9, "How often a bloom filter may be wrong at that many keys."
    )
    bloom_max_entries: int = option(
        "hoodie.bloom.index.filter.dynamic.max.entries", NUMBER, 100_000, "Up to how many keys a bloom filter grows."
    )

    # --- logs
    log_row_group_rows: int = option(
        "lakebed.log.row.group.rows",
        NUMBER,
        16 << 10,
        "The most rows in a row group of a log; readers skip small ones more precisely.",
    )
    log_naming: LogNaming = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.log.naming", choice_of(LogNaming), LogNaming.NATIVE, "The names of native logs."
    )
    log_block_format: LogBlockFormat = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.logfile.data.block.format",
        choice_of(LogBlockFormat),
        LogBlockFormat.PARQUET,
        "The format of rows in version 1 logs.",
    )
    log_block_max_size: int = option(
        "hoodie.logfile.data.block.max.size", SIZE, 256 << 20, "The size at which a version 1 log begins a new block."
    )
    log_max_size: int = option(
        "hoodie.logfile.max.size", SIZE, 1 << 30, "The size at which the next version 1 log file begins."
    )

    # --- memory
    write_buffer: int = option(
        "lakebed.write.buffer",
        SIZE,
        64 << 20,
        "How many bytes of rows may be queued for encoding and upload, per file; 0 encodes them in the merging thread.",
    )

    def __post_init__(self) -> None:
        sizes = {
            "page": self.page_size,
            "row group": self.row_group_size,
            "file": self.max_file_size,
            "log block": self.log_block_max_size,
            "log file": self.log_max_size,
        }
        wrong = [name for name, size in sizes.items() if size <= 0]
        wrong += ["write buffer"] if self.write_buffer < 0 else []
        if wrong or min(self.row_group_rows, self.log_row_group_rows) <= 0:
            raise InvalidRequest(f"sizes must be positive: {', '.join(wrong) or 'rows of a row group'}")
        if self.bloom_entries <= 0 or self.bloom_max_entries <= 0:
            raise InvalidRequest("a bloom filter is made for at least one key")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """The group's options from `hoodie.*` keys; other keys are ignored."""
        return cls().override(properties)

    def to_properties(self) -> dict[str, str]:
        return to_properties(self)

    def override(self, options: Mapping[str, str] | Self | None = None, **named: Any) -> Self:
        """These options with others on top: an options object or `hoodie.*` keys, then named values that are not None.

        Sizes may be given as text such as "512MB".
        """
        changed = self
        declared = options_of(type(self))
        if isinstance(options, Mapping):
            changes = {name: one for name, one in declared.items() if any(key in options for key in one.keys)}
            changed = replace(changed, **{name: one.read(options) for name, one in changes.items()})
        elif options is not None:
            changed = options
        values: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        unknown = values.keys() - declared.keys()
        if unknown:
            raise InvalidRequest(f"no write option is called {', '.join(sorted(unknown))}")
        sizes = {name: bytes_of(value) for name, value in values.items() if declared[name].kind is SIZE}
        return replace(changed, **(values | sizes)) if values else changed


@dataclass(frozen=True, slots=True)
class WriteOptions(FileOptions):
    """The options of a write: those of its files, and the others that the write path reads."""

    small_file_limit: int = option(
        "hoodie.parquet.small.file.limit",
        SIZE,
        100 << 20,
        "Base files below this size take new keys before new file groups are made; 0 turns that off.",
    )
    combine_before_insert: bool = option(
        "hoodie.combine.before.insert",
        FLAG,
        False,
        "Whether inserts merge rows with the same key; in the LSM layout they always do.",
    )
    duplicate_policy: Duplicates = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.datasource.insert.dup.policy",
        choice_of(Duplicates),
        Duplicates.NONE,
        "What an insert does with rows whose key is in the table: nothing, drop them, or refuse the whole write. "
        "Bulk inserts never check.",
    )
    drop_duplicates: bool = option(
        "hoodie.datasource.write.insert.drop.duplicates", FLAG, False, "The older name of the policy `drop`."
    )
    merge_sort: bool = option(
        "compaction_with_merge_sort_enable",
        FLAG,
        True,
        "Known from RFC-81 and without effect: rows of every log are sorted by key, and the Parquet footer records it "
        "(Avro blocks cannot); a header for it would stop Hudi 1.2 from reading the log.",
        ("hoodie.compaction.with.merge.sort.enable",),
    )
    allow_ambiguous_keys: bool = option(
        "lakebed.allow.ambiguous.keys",
        FLAG,
        False,
        "Whether, as in Hudi, values may be written whose record key or partition path is the same for other values: "
        "`,column:`, `__null__` or `__empty__` in a key of several columns, the empty text or a slash in a path. "
        "Rows with the same key are then one row.",
    )
    drop_metadata: bool = option(
        "lakebed.drop.metadata",
        FLAG,
        False,
        "Whether the write first removes the table's metadata table, which lakebed does not update.",
    )

    def __post_init__(self) -> None:
        FileOptions.__post_init__(self)
        if self.drop_duplicates and self.duplicate_policy is Duplicates.FAIL:
            raise InvalidRequest(
                "hoodie.datasource.write.insert.drop.duplicates=true contradicts the duplicate policy fail",
                hint="Give hoodie.datasource.insert.dup.policy alone.",
            )

    @property
    def duplicates(self) -> Duplicates:
        """What an insert does with rows whose key is in the table already."""
        return Duplicates.DROP if self.drop_duplicates else self.duplicate_policy
