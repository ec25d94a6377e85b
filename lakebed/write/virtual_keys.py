"""Which tables without meta fields are written: those whose keys real Hudi makes from the columns as we do.

Hudi makes the key of a row in two ways. Its writers call the key generator; its merges format the stored key columns of
existing rows. Where the two texts differ, updates and deletes find no row: updated rows exist twice, and deleted rows
reappear. That is so for a single key column under COMPLEX (`id:7` and `7`), and for dates, decimals
and bytes (`2020-01-04` and a number of days). Such tables are refused in the versions that Hudi knows.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakebed.config.read_options import TableConfig
from lakebed.errors import InvalidRequest
from lakebed.index.kinds import creatable_kinds
from lakebed.index.options import IndexOptions
from lakebed.model.partition_path import flag
from lakebed.model.record_key import LOGICAL_TIMESTAMPS

POPULATE_META_FIELDS = "hoodie.populate.meta.fields"
PLAIN_KEYGENS = ("SIMPLE", "COMPLEX", "NON_PARTITION")
_OTHERWISE = f"or leave {POPULATE_META_FIELDS} at true"


def refuse_unmade_keys(config: TableConfig, schema: pa.Schema | None = None) -> None:
    """`InvalidRequest` for tables without meta fields whose keys cannot be made, or differ between Hudi and lakebed."""
    if config.populate_meta_fields:
        return
    if not config.key_fields:
        raise InvalidRequest(
            "a table without meta fields needs a record key: there is no column to store generated keys in",
            hint=f"Give it a record key, or leave {POPULATE_META_FIELDS} at true.",
        )
    if (config.keygen_type or PLAIN_KEYGENS[0]) not in PLAIN_KEYGENS:
        raise InvalidRequest(
            f"a table without meta fields cannot have the key generator {config.keygen_type}",
            hint=f"Use one of {', '.join(PLAIN_KEYGENS)}, or leave {POPULATE_META_FIELDS} at true.",
        )
    if config.version.has_native_logs:
        return
    if config.keygen_type == "COMPLEX" and len(config.key_fields) == 1:
        raise InvalidRequest(
            "without meta fields Hudi loses updates and deletes if the key generator COMPLEX makes keys of one column",
            hint=f"Partition by one column, add a second key column, {_OTHERWISE}.",
        )
    for item in schema or ():
        if item.name in config.key_fields and not _has_one_text(item.type, config):
            raise InvalidRequest(
                f"without meta fields Hudi loses updates and deletes if a key column is {item.type}: {item.name!r}",
                hint=f"Use a text or number as the key, {_OTHERWISE}.",
            )


def refuse_other_meta_fields(config: TableConfig, properties: Mapping[str, str]) -> None:
    """Refuse to change `hoodie.populate.meta.fields`: rows with and without meta fields could not be told apart."""
    wanted = properties.get(POPULATE_META_FIELDS)
    if wanted is not None and wanted.strip().lower() != str(config.populate_meta_fields).lower():
        raise InvalidRequest(
            f"the table was made with {POPULATE_META_FIELDS}={str(config.populate_meta_fields).lower()}, not {wanted}",
            hint="Leave the option out, or make another table.",
        )


def refuse_unstored_keys(config: TableConfig, index_options: IndexOptions) -> None:
    """Bloom filters are built from stored keys: without those, Hudi's own upserts fail with a NullPointerException."""
    if config.populate_meta_fields:
        return
    kind = index_options.index_kind
    if kind.reads_bloom_filters:
        others = ", ".join(one.name for one in creatable_kinds() if not one.reads_bloom_filters)
        raise InvalidRequest(
            f"hoodie.index.type={kind.name} needs keys in files, and the table has no meta fields",
            hint=f"Use one of {others}.",
        )


def _has_one_text(kind: pa.DataType, config: TableConfig) -> bool:
    """Whether the key text of a value is the same from the key generator and from the stored column."""
    if pa.types.is_timestamp(kind):
        return not flag(config.properties, LOGICAL_TIMESTAMPS)
    plain = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(is_one(kind) for is_one in plain)
