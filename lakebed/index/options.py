"""What a writer may choose about indexes.

A table stores the type and the buckets of its index in its properties, and a writer cannot change what is stored there.
Tables that real Hudi wrote store none of it: there the writer has to name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakebed.config.option import (
    FLAG,
    NUMBER,
    WORDS,
    choice_of,
    option,
    options_of,
    read_options,
    registered,
    to_properties,
)
from lakebed.config.read_options import TableConfig
from lakebed.errors import InvalidRequest
from lakebed.index.kinds import BUCKET, INDEX_KINDS, SIMPLE, IndexKind, index_kind


class BucketEngine(StrEnum):
    """How a bucket index finds the bucket: by a fixed count, or on a ring that can be resized."""

    SIMPLE = "SIMPLE"
    CONSISTENT_HASHING = "CONSISTENT_HASHING"


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The options of indexes."""

    kind: str = option(
        "hoodie.index.type", registered(INDEX_KINDS), SIMPLE, "How a row's file group is found when writing."
    )
    engine: BucketEngine = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.index.bucket.engine", choice_of(BucketEngine), BucketEngine.SIMPLE, "The kind of bucket index."
    )
    num_buckets: int | None = option(
        "hoodie.bucket.index.num.buckets", NUMBER, None, "Buckets per partition of a bucket index."
    )
    hash_fields: tuple[str, ...] = option(
        "hoodie.bucket.index.hash.field", WORDS, (), "The key columns that a bucket index hashes; all when empty."
    )
    bloom_moves: bool = option(
        "hoodie.bloom.index.update.partition.path",
        FLAG,
        True,
        "With a global bloom index: whether a key follows its row to another partition, or the row stays where the key "
        "is, with the partition values of that partition.",
    )
    simple_moves: bool = option(
        "hoodie.simple.index.update.partition.path",
        FLAG,
        True,
        "With a global simple index: whether a key follows its row to another partition, or the row stays where its "
        "key is, with the partition values of that partition.",
    )
    record_moves: bool = option(
        "hoodie.record.index.update.partition.path",
        FLAG,
        False,
        "With the record index: whether a key follows its row to another partition, or the row stays where the key is, "
        "with the partition values of that partition.",
    )
    prune_by_ranges: bool = option(
        "hoodie.bloom.index.prune.by.ranges", FLAG, True, "Whether a bloom index leaves out files by their key range."
    )

    def __post_init__(self) -> None:
        if self.num_buckets is not None and self.num_buckets < 1:
            raise InvalidRequest(f"a bucket index needs at least one bucket, not {self.num_buckets}")

    @property
    def index_kind(self) -> IndexKind:
        """What is known of the kind before an index is opened."""
        return index_kind(self.kind)

    @property
    def is_global(self) -> bool:
        """Whether a key is unique in the table, not only in its partition."""
        return self.index_kind.is_global

    @property
    def is_hashed(self) -> bool:
        """Whether file groups follow from keys alone."""
        return self.index_kind.is_hashed

    @property
    def is_simple_bucket(self) -> bool:
        """Whether the bucket is the hash modulo a fixed number of buckets."""
        return self.kind == BUCKET and self.engine is BucketEngine.SIMPLE

    @property
    def is_consistent_bucket(self) -> bool:
        """Whether buckets are on a ring, and can be split and merged."""
        return self.kind == BUCKET and self.engine is BucketEngine.CONSISTENT_HASHING

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> IndexOptions:
        return cls(**read_options(cls, properties))

    def to_properties(self) -> dict[str, str]:
        return to_properties(self)


_LOCATION_OPTIONS = ("kind", "engine", "num_buckets", "hash_fields")
"""The options that determine the file group of a key: all writers of a table must use the same values."""


def refuse_other_index(config: TableConfig, options: Mapping[str, str]) -> None:
    """Refuse index options that differ from the table's: existing keys would be written again to other file groups."""
    declared = options_of(IndexOptions)
    for name in _LOCATION_OPTIONS:
        key = declared[name].key
        if key not in config.properties or key not in options:
            continue
        own, other = (declared[name].read({key: properties[key]}) for properties in (config.properties, options))
        if name == "hash_fields":
            own, other = (fields or config.key_fields for fields in (own, other))
        if own != other:
            raise InvalidRequest(
                f"the table was made with {key}={config.properties[key]}, not {str(options[key])!r}",
                hint="Leave the option (num_buckets= sets two of them) out: the table knows it.",
            )
