"""A table's own settings: `hoodie.properties` as typed values.

Aliases, old spellings and derived settings are resolved here once, so that no other layer reads a property by its key.
A table that cannot be read correctly is refused here as well, before any of its files is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from lakebed.config.base_file_formats import BASE_FILE_FORMATS
from lakebed.config.merge_settings import MergeMode, MergeSettings, PartialUpdateMode, merge_settings
from lakebed.config.option import FLAG, NUMBER, TEXT, WORDS, choice, choice_of, option, read_options, registered
from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat


class TableVersion(IntEnum):
    """The table versions that lakebed knows. Code uses the properties below instead of comparing numbers."""

    SIX = 6
    EIGHT = 8
    NINE = 9
    TEN = 10

    @property
    def readable(self) -> bool:
        """Whether lakebed reads such tables."""
        return self is not TableVersion.SIX

    @property
    def has_native_logs(self) -> bool:
        """Whether log files may be plain Parquet files under visible names."""
        return self is TableVersion.TEN

    @property
    def has_versioned_indexes(self) -> bool:
        """Whether index definitions and column statistics carry a layout version and a value type."""
        return self >= TableVersion.NINE


KEY_GENERATOR_TYPES = {
    "SimpleKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "CustomKeyGenerator": "CUSTOM",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "GlobalDeleteKeyGenerator": "GLOBAL_DELETE",
}
_MERGE_MODE = "hoodie.record.merge.mode"
_MERGE_PROPERTY = "hoodie.record.merge.property."
_DELETE_FIELD = "hoodie.payload.delete.field"
_DELETE_MARKER = "hoodie.payload.delete.marker"
_UNAVAILABLE = "hoodie.write.partial.update.unavailable.value"


@dataclass(frozen=True, slots=True)
class TableConfig:
    """A table's own properties. Fields with a key are properties; those after `properties` are made from them."""

    name: str = option("hoodie.table.name", TEXT, "", "The table's name.")
    database: str = option("hoodie.database.name", TEXT, "", "The database that an SQL catalog keeps the table in.")
    table_type: str = option(
        "hoodie.table.type",
        choice({"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}),
        "cow",
        "Whether updates rewrite base files or go to log files first.",
    )
    version: TableVersion = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.table.version",
        choice({str(int(version)): version for version in TableVersion}),
        TableVersion.NINE,
        "The version of the table's format.",
    )
    layout: str = option(
        "hoodie.table.storage.layout",
        choice({"default": "default", "lsm_tree": "lsm_tree"}),
        "default",
        "How file groups are organised: `lsm_tree` keeps every file sorted by record key.",
    )
    key_fields: tuple[str, ...] = option(
        "hoodie.table.recordkey.fields", WORDS, (), "The columns that make up the record key."
    )
    partition_fields: tuple[str, ...] = option(
        "hoodie.table.partition.fields", WORDS, (), "The columns that make up the partition path."
    )
    keygen_type: str | None = option(
        "hoodie.table.keygenerator.type", TEXT, None, "How record keys and partition paths are made from columns."
    )
    keygen_class: str | None = option(
        "hoodie.table.keygenerator.class",
        TEXT,
        None,
        "The Java class of the key generator, in tables that name no type.",
        ("hoodie.datasource.write.keygenerator.class",),
    )
    ordering_fields: tuple[str, ...] = option(
        "hoodie.table.ordering.fields",
        WORDS,
        (),
        "The columns that decide which of two versions of a row is the later one.",
        ("hoodie.table.precombine.field",),
    )
    merge_mode: MergeMode = option(  # noqa: RUF009 (a field, not a shared value)
        _MERGE_MODE, choice_of(MergeMode), MergeMode.EVENT_TIME, "Which of two versions of a row wins."
    )
    merge_strategy_id: str | None = option(
        "hoodie.record.merge.strategy.id",
        TEXT,
        None,
        "The id of the merger, where the mode alone does not determine it.",
    )
    payload_class: str | None = option(
        "hoodie.table.legacy.payload.class",
        TEXT,
        None,
        "The Java payload class that the merge mode stands for, or that merges.",
        ("hoodie.compaction.payload.class",),
    )
    partial_update_mode: PartialUpdateMode | None = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.table.partial.update.mode",
        choice_of(PartialUpdateMode),
        None,
        "Which columns of a new version leave the stored ones as they are.",
    )
    delete_field: str | None = option(
        _MERGE_PROPERTY + _DELETE_FIELD,
        TEXT,
        None,
        "The column whose value marks a row as a delete.",
        (_DELETE_FIELD,),
    )
    delete_marker: str | None = option(
        _MERGE_PROPERTY + _DELETE_MARKER, TEXT, None, "The value that marks a row as a delete.", (_DELETE_MARKER,)
    )
    unavailable_value: str | None = option(
        _MERGE_PROPERTY + _UNAVAILABLE, TEXT, None, "The text that stands for an unchanged value.", (_UNAVAILABLE,)
    )
    populate_meta_fields: bool = option(
        "hoodie.populate.meta.fields",
        FLAG,
        True,
        "Whether rows have Hudi's five meta columns; else keys are made from columns, and rows have no commit time.",
    )
    base_file_format: str = option(
        "hoodie.table.base.file.format",
        registered(BASE_FILE_FORMATS, str.lower),
        "parquet",
        "The format of base files.",
    )
    hive_style: bool = option(
        "hoodie.datasource.write.hive_style_partitioning", FLAG, False, "Whether folders are named `column=value`."
    )
    url_encode: bool = option(
        "hoodie.datasource.write.partitionpath.urlencode", FLAG, False, "Whether partition values are escaped in paths."
    )
    drop_partition_columns: bool = option(
        "hoodie.datasource.write.drop.partition.columns",
        FLAG,
        False,
        "Whether partition columns are left out of the data files.",
    )
    metafile_in_base_format: bool = option(
        "hoodie.partition.metafile.use.base.format",
        FLAG,
        False,
        "Whether the file that marks a partition is in the base file format.",
    )
    timezone: str = option(
        "hoodie.table.timeline.timezone",
        choice({"LOCAL": "LOCAL", "UTC": "UTC"}),
        "LOCAL",
        "The zone of instant times: the writer's own, or UTC.",
    )
    timeline_path: str = option(
        "hoodie.timeline.path", TEXT, "timeline", "The timeline's folder, relative to `.hoodie`."
    )
    history_path: str = option(
        "hoodie.timeline.history.path", TEXT, "history", "The history's folder, relative to the timeline's."
    )
    metadata_partitions: tuple[str, ...] = option(
        "hoodie.table.metadata.partitions", WORDS, (), "The finished partitions of the metadata table."
    )
    metadata_partitions_inflight: tuple[str, ...] = option(
        "hoodie.table.metadata.partitions.inflight", WORDS, (), "Partitions of the metadata table being built."
    )
    index_defs_path: str | None = option(
        "hoodie.table.index.defs.path", TEXT, None, "The path of the index definitions, relative to the table."
    )
    create_schema: str | None = option(
        "hoodie.table.create.schema", TEXT, None, "The schema at creation, as Avro text without Hudi's columns."
    )
    cdc_enabled: bool = option("hoodie.table.cdc.enabled", FLAG, False, "Whether changes are logged for change feeds.")
    cdc_mode: str = option(
        "hoodie.table.cdc.supplemental.logging.mode",
        choice({mode: mode for mode in ("DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY")}),
        "DATA_BEFORE_AFTER",
        "Which images of a changed row the change log holds.",
    )
    index_type: str | None = option("hoodie.index.type", TEXT, None, "How a row's file group is found when writing.")
    num_buckets: int | None = option(
        "hoodie.bucket.index.num.buckets", NUMBER, None, "Buckets per partition of a bucket index."
    )
    bucket_hash_fields: tuple[str, ...] = option(
        "hoodie.bucket.index.hash.field", WORDS, (), "The key columns that a bucket index hashes; all when empty."
    )
    properties: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    partition_types: tuple[str | None, ...] = ()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], file: str = ".hoodie/hoodie.properties") -> TableConfig:
        """The configuration in a table's properties; refuses tables that cannot be read correctly."""
        _check_readable(properties, file)
        try:
            values = read_options(cls, properties)
        except InvalidRequest as problem:
            raise CorruptTable(problem.what, file=file) from None
        fields, types = _partition_fields(values["partition_fields"], file)
        stated = values["merge_mode"] if properties.get(_MERGE_MODE, "").strip() else None
        merge = merge_settings(stated, values["payload_class"], values["merge_strategy_id"], _single_settings(values))
        return cls(
            **values
            | {
                "name": properties["hoodie.table.name"],
                "keygen_type": _keygen_type(values["keygen_type"], values["keygen_class"]),
                "partition_fields": fields,
                "partition_types": types,
                "merge_mode": merge.mode,
                "ordering_fields": merge.ordering_fields,
                "partial_update_mode": merge.partial_update_mode,
                "delete_field": merge.delete_field,
                "delete_marker": merge.delete_marker,
                "unavailable_value": merge.unavailable_value,
                "properties": dict(properties),
            }
        )

    @property
    def is_partitioned(self) -> bool:
        return bool(self.partition_fields)

    @property
    def is_mor(self) -> bool:
        return self.table_type == "mor"

    @property
    def is_lsm_tree(self) -> bool:
        return self.layout == "lsm_tree"

    @property
    def has_metadata_table(self) -> bool:
        """Whether readers may trust the metadata table: its list of files is finished."""
        return "files" in self.metadata_partitions

    @property
    def has_shared_logs(self) -> bool:
        """Whether old logs may hold blocks of several writes: the table was created before version 8."""
        first = self.properties.get("hoodie.table.initial.version", "").strip()
        return first.isascii() and first.isdigit() and len(first) < 3 and int(first) < TableVersion.EIGHT


def _check_readable(properties: Mapping[str, str], file: str) -> None:
    if not properties.get("hoodie.table.name"):
        raise CorruptTable("hoodie.table.name is missing", file=file)
    version = properties.get("hoodie.table.version", "").strip()
    known = {str(int(version)): version for version in TableVersion}
    if version not in known or not known[version].readable:
        newer = version.isascii() and version.isdigit() and len(version) < 9 and int(version) > max(TableVersion)
        way_out = "Use a newer lakebed." if newer else "Upgrade it with Apache Hudi 1.x (hoodie.write.auto.upgrade)."
        raise UnsupportedFormat(
            f"table version {version[:20] or 'unknown'} is not one of 8, 9 and 10", file=file, hint=way_out
        )
    if properties.get("hoodie.timeline.layout.version", "2").strip() != "2":
        raise UnsupportedFormat("a timeline layout other than 2", file=file, hint="Upgrade the table with Hudi 1.x.")
    if properties.get("hoodie.table.format", "native").strip() != "native":
        raise UnsupportedFormat("a table whose format is kept by a plug-in of Hudi", file=file)
    if properties.get("hoodie.bootstrap.base.path", "").strip():
        raise UnsupportedFormat(
            "a bootstrapped table, whose rows are partly stored in another one",
            file=file,
            hint="Rewrite it with Hudi's clustering or a full bootstrap first.",
        )


def _partition_fields(declared: tuple[str, ...], file: str) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    """Names and types apart: the custom key generator stores `field:TYPE`."""
    parts = [word.partition(":") for word in declared]
    if not all(name for name, _, _ in parts):
        raise CorruptTable("hoodie.table.partition.fields has a field without a name", file=file)
    return tuple(name for name, _, _ in parts), tuple(kind.strip().upper() or None for _, _, kind in parts)


def _keygen_type(stated: str | None, class_name: str | None) -> str | None:
    """The type in one spelling: tables name it with or without `_AVRO`, old ones by the Java class."""
    if stated is None:
        return KEY_GENERATOR_TYPES.get((class_name or "").rpartition(".")[2].replace("Avro", ""))
    return stated.strip().upper().removesuffix("_AVRO")


def _single_settings(values: Mapping[str, Any]) -> MergeSettings:
    """The merge settings that have a property of their own; the mode is decided apart."""
    return MergeSettings(
        mode=MergeMode.CUSTOM,
        ordering_fields=values["ordering_fields"],
        partial_update_mode=values["partial_update_mode"],
        delete_field=values["delete_field"],
        delete_marker=values["delete_marker"],
        unavailable_value=values["unavailable_value"],
    )
