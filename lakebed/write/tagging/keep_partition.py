"""Rows that are kept in the partition where their key is, though their partition columns have other values.

That is a global index with `update.partition.path=false`. Hudi then writes the row unchanged into the folder of the old
value: a filter on the partition column skips the folder by its name, and the row is found neither by its new value nor
by its old one. Here the row gets the partition values of the folder, so that filters, deletes and later moves are
right; all its other columns are the new ones. Values are taken from the path; where they cannot be derived from it
(formatted times, a field of a struct), the write is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.read_options import TableConfig
from lakebed.errors import InvalidRequest
from lakebed.index.locations import OLD_FILE_ID
from lakebed.merge.arrow_numpy import bool_array
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.window import marked
from lakebed.model.concat import concat_chunks
from lakebed.model.partition_path import PartitionFields
from lakebed.model.record_key import key_generator_of
from lakebed.model.schema import PARTITION_PATH
from lakebed.view.partition_values import partition_values


@dataclass(frozen=True, slots=True)
class Folders:
    """Converts partition values to folder names and back."""

    config: TableConfig
    paths: PartitionFields

    @classmethod
    def of(cls, config: TableConfig, properties: Mapping[str, str]) -> Folders:
        return cls(config, key_generator_of(config, properties).partition)


def with_kept_partitions(rows: pa.Table, locations: pa.Table, rule: MergeRule, folders: Folders) -> pa.Table:
    """The rows; those whose key is kept in another partition get the values of that one, except deletes."""
    kept = locations.column(PARTITION_PATH)
    stays = pc.and_(pc.not_equal(rows.column(PARTITION_PATH), kept), pc.is_null(locations.column(OLD_FILE_ID)))
    if not pc.any(stays).as_py():
        return rows
    stays = concat_chunks(pc.and_(stays, bool_array(~marked(rows, rule))))
    for path in pc.unique(kept.filter(stays)).to_pylist():
        values = _values(path, rows.schema, folders)
        here = pc.and_(stays, pc.equal(kept, path))
        for name, value in values.items():
            at = rows.schema.get_field_index(name)
            field = rows.schema.field(at)
            rows = rows.set_column(at, field, pc.if_else(here, pa.scalar(value, field.type), rows.column(at)))
    return rows


def _values(path: str, schema: pa.Schema, folders: Folders) -> dict[str, object]:
    """The partition values of a path; the path made from them must be the same again."""
    values = partition_values(path, folders.config, schema)
    if values is not None:
        one = pa.RecordBatch.from_arrays(
            [pa.array([value], schema.field(name).type) for name, value in values.items()], names=list(values)
        )
        if folders.paths.paths(one)[0].as_py() == path:
            return values
    raise InvalidRequest(
        f"keys of the partition {path!r} are to be kept there, and its name does not determine its partition values",
        hint="Set hoodie.*.index.update.partition.path=true, or write the rows with their old partition values.",
    )
