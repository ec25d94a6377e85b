"""Row group statistics of a Parquet footer: whether a condition can match, and how large the rows are in memory.

A condition refers to the reader's columns, a footer to the file's. They can be compared only where a field of the
condition is a leaf of the file with the very type the condition was written for: a renamed column is looked up by its
old name, and one that was promoted since is ignored, because its values will be converted before they are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from lakebed.errors import CorruptTable
from lakebed.expression.predicate import ColumnStats, Predicate
from lakebed.expression.tree import fields
from lakebed.format.parquet.footer import ColumnChunk, Footer
from lakebed.format.parquet.schema import Physical
from lakebed.format.parquet.statistics import bounds, byte_bounds, null_count
from lakebed.model.schema_evolution import Renames

_WIDTHS = {Physical.BOOLEAN: 1, Physical.INT32: 4, Physical.FLOAT: 4}


def leaves_of_predicate(predicate: Predicate, schema: pa.Schema, footer: Footer, renames: Renames) -> dict[str, int]:
    """The leaf for each field of the condition that has usable statistics, by dotted name, in file order."""
    mentioned = {field.path: field for field in fields(predicate.root)}
    names = Counter(field.name for field in mentioned.values())
    found: dict[str, int] = {}
    for field in mentioned.values():
        path = _path_in_file(field.path, renames)
        if names[field.name] > 1 or path is None or _type_at(schema, path) != field.type:  # a.b may be two things
            continue
        leaf = footer.leaf(path)
        if leaf is not None and not footer.leaves[leaf].repeated:
            found[field.name] = leaf
    return dict(sorted(found.items(), key=lambda item: item[1]))


def column_stats(chunk: ColumnChunk, rows: int, file: str) -> ColumnStats:
    """What is known of a column that has one value, or null, in each row."""
    if chunk.num_values != rows:
        message = f"{chunk.num_values} values of {chunk.leaf.name!r} in a row group of {rows} rows"
        raise CorruptTable(message, file=file, offset=chunk.offset)
    low, high = bounds(chunk, file)
    return ColumnStats(low, high, null_count(chunk), rows)


def decoded_bytes(chunk: ColumnChunk, rows: int) -> int:
    """Arrow's size of a column chunk: the encoded size is far too small where values repeat."""
    stored = chunk.uncompressed_size
    physical = chunk.leaf.physical
    if physical in (Physical.BYTE_ARRAY, Physical.FIXED_LEN_BYTE_ARRAY):
        ends = byte_bounds(chunk)
        if ends is not None:
            return max(stored, rows * (4 + (len(ends[0]) + len(ends[1])) // 2))
        return max(stored, rows * 20) if chunk.dictionary_page_offset is not None else stored
    return max(stored, rows * _WIDTHS.get(physical, 8))


def _path_in_file(path: Sequence[str], renames: Renames) -> tuple[str, ...] | None:
    found = [renames.get(".".join(path[: depth + 1]), name) for depth, name in enumerate(path)]
    return None if None in found else tuple(name for name in found if name is not None)


def _type_at(schema: pa.Schema, path: Sequence[str]) -> pa.DataType | None:
    """The Arrow type of a column, or of a field within structs."""
    position = schema.get_field_index(path[0])
    found = schema.field(position).type if position >= 0 else None
    for name in path[1:]:
        position = found.get_field_index(name) if found is not None and pa.types.is_struct(found) else -1
        found = found.field(position).type if found is not None and position >= 0 else None
    return found
