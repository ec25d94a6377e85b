"""The reader context: what a file group reader must know of a table besides its files, and the split that it reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.merge.record_merger import MergeRule
from lakebed.model.files import FileSlice
from lakebed.model.internal_schema import SchemaOnRead
from lakebed.model.record_key import KeyGenerator

LSM_TREE = "lsm_tree"


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What a reader must know of a table besides its files."""

    schema: pa.Schema
    rule: MergeRule = field(default_factory=MergeRule)
    layout: str = "default"
    key_column: str | None = None
    """The user's column whose text is the record key, where there is just one."""
    on_read: SchemaOnRead | None = None
    """For tables with schema-on-read: how the columns of a file are found; `schema` is its requested version."""
    virtual_key: KeyGenerator | None = None
    """How record keys are made where the table stores none and no column is the key as it stands.

    A schema with meta columns, as writers need it, then gets the key made, the partition path by the file's folder, and
    nulls in the others.
    """

    @property
    def schema_id(self) -> int | None:
        """The number of the schema's version, for tables that keep versions."""
        return None if self.on_read is None else self.on_read.wanted.version


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """A unit of work: one slice, small enough to send anywhere."""

    slice: FileSlice
