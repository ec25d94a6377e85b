"""What `format("lakebed")` may be told, under Hudi's own option names, and the table that it speaks of.

Spark lower-cases option keys. Keys that begin with `lakebed.storage.` go to the store without that prefix, as
`storage_options` of `lakebed.open` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.config.compaction_options import CompactionOptions
from lakebed.config.option import options_of
from lakebed.config.options import ReadOptions, TableConfig
from lakebed.config.write_options import WriteOptions
from lakebed.errors import InvalidRequest, TableNotFound
from lakebed.read.plan import Query, query_named
from lakebed.read.scan import Scan
from lakebed.runner import LocalRunner
from lakebed.services.drop_metadata import is_half_dropped, remove_metadata
from lakebed.services.services import Services
from lakebed.storage.open import open_storage
from lakebed.storage.storage import Storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.control import Control
from lakebed.txn.options import TxnOptions
from lakebed.write.create import INDEXES, NewTable, create_table, schema_of
from lakebed.write.operation import Operation
from lakebed.write.operations import TableWriter

PATH = "path"
FILTER = "lakebed.filter"
STORAGE = "lakebed.storage."
AS_OF = "as.of.instant"
QUERY_TYPE = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"
OPERATION = "hoodie.datasource.write.operation"
RECORD_KEY = ("hoodie.datasource.write.recordkey.field", "hoodie.table.recordkey.fields")
PARTITION_PATH = ("hoodie.datasource.write.partitionpath.field", "hoodie.table.partition.fields")
PRECOMBINE = (
    "hoodie.datasource.write.precombine.field",
    "hoodie.table.ordering.fields",
    "hoodie.table.precombine.field",
)
TABLE_NAME = ("hoodie.table.name", "hoodie.datasource.write.table.name")
TABLE_TYPE = ("hoodie.datasource.write.table.type", "hoodie.table.type")
VERSION = ("hoodie.table.version", "hoodie.write.table.version")
_TABLE_TYPES = {"MERGE_ON_READ": "mor", "COPY_ON_WRITE": "cow", "MOR": "mor", "COW": "cow"}
_NOT_KEPT = {*RECORD_KEY, *PARTITION_PATH, *PRECOMBINE, *TABLE_TYPE, *VERSION, TABLE_NAME[1]}


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one read or write."""

    options: Mapping[str, str]

    @property
    def path(self) -> str:
        if self.options.get(PATH):
            return self.options[PATH]
        raise InvalidRequest(
            "no path was given", hint="Use load(path) or save(path); a SQL statement takes it as WITH ('path' = '...')."
        )

    @property
    def storage(self) -> Storage:
        given = {key[len(STORAGE) :]: value for key, value in self.options.items() if key.startswith(STORAGE)}
        return open_storage(self.path, given)

    @property
    def own(self) -> dict[str, str]:
        """The keys that lakebed and Hudi give a meaning to."""
        return {
            key: value
            for key, value in self.options.items()
            if key.startswith(("hoodie.", "lakebed.")) and not key.startswith(STORAGE) and key != PATH
        }

    # ------------------------------------------------------------------ reading
    def scan(self) -> Scan:
        """What a read asks for."""
        client = MetaClient.open(self.storage)
        start, end, as_of = (self.options.get(key) for key in (BEGIN, END, AS_OF))
        query = query_named(self.options.get(QUERY_TYPE, Query.SNAPSHOT))
        if query is Query.INCREMENTAL:
            if start is None:
                raise InvalidRequest("an incremental query needs a start", hint=f"Set {BEGIN}, to 0 for everything.")
            start = "0" if start.lower() == "earliest" else start
        elif start is not None or end is not None:
            raise InvalidRequest(
                f"{BEGIN} and {END} go with an incremental query", hint=f'Set {QUERY_TYPE} to "incremental".'
            )
        options = ReadOptions().override(self.own)
        return Scan(client, query, None, self.options.get(FILTER), as_of, start, end, options=options)

    # ------------------------------------------------------------------ writing
    def operation(self, overwrite: bool) -> Operation:
        """What a write does. `mode("overwrite")` replaces all rows, unless the operation says which."""
        name = self.options.get(OPERATION)
        if name is None:
            if overwrite:
                return Operation.INSERT_OVERWRITE_TABLE
            return Operation.UPSERT if self._has_key() else Operation.INSERT
        try:
            found = Operation(name.upper())
        except ValueError:
            known = ", ".join(op.lower() for op in Operation if op is not Operation.DELETE_PARTITION)
            raise InvalidRequest(f"there is no operation {name!r}", hint=f"Use one of: {known}.") from None
        if found is Operation.DELETE_PARTITION:
            raise InvalidRequest("partitions are not deleted by writing rows", hint="Use t.delete_partitions([...]).")
        if overwrite and found in (Operation.UPSERT, Operation.INSERT, Operation.BULK_INSERT):
            return Operation.INSERT_OVERWRITE_TABLE
        return found

    def table(self, schema: pa.Schema, operation: Operation) -> MetaClient:
        """The table to write to; made when there is none yet."""
        storage = self.storage
        try:
            client = MetaClient.open(storage)
        except TableNotFound:
            if operation is Operation.DELETE:
                raise
            create_table(storage, self.new_table(storage, schema))
            client = MetaClient.open(storage)
        self._check_same(client.config)
        return client

    def writer(self, client: MetaClient) -> TableWriter:
        """How the table is written to; a metadata table goes first where the options say so."""
        chosen = {**client.config.properties, **self.own}
        CompactionOptions.from_properties(chosen)  # what follows the write must not find out later
        control = self._control(client)
        options = WriteOptions.from_properties(chosen)
        writer = TableWriter(client, control, options, self.own, memory=self._memory)
        if options.drop_metadata or is_half_dropped(client):
            writer = replace(writer, client=remove_metadata(client, control))
        return writer

    def services(self, client: MetaClient) -> Services:
        """What looks after the table."""
        fresh = client.reload()
        return Services(fresh, self._control(fresh), LocalRunner(), self._memory, lambda: None, self.own)

    def _control(self, client: MetaClient) -> Control:
        return Control.of(client.storage, TxnOptions.from_properties({**client.config.properties, **self.own}))

    @property
    def _memory(self) -> int:
        return ReadOptions().override(self.own).memory

    def new_table(self, storage: Storage, schema: pa.Schema) -> NewTable:
        """The table that the options describe."""
        own = self.own
        version = _first(own, VERSION)
        return NewTable(
            name=_first(own, TABLE_NAME) or storage.url.rstrip("/").rpartition("/")[2],
            schema=schema_of(schema),
            record_key=_words(_first(own, RECORD_KEY)),
            partition_by=_words(_first(own, PARTITION_PATH)),
            ordering=_words(_first(own, PRECOMBINE)),
            table_type=_table_type(_first(own, TABLE_TYPE)),
            layout=own.get("hoodie.table.storage.layout", "lsm_tree"),
            log_format="v1" if version in ("8", "9") else "v2",
            index=_index(own),
            num_buckets=int(own["hoodie.bucket.index.num.buckets"])
            if own.get("hoodie.bucket.index.num.buckets")
            else None,
            properties={key: value for key, value in own.items() if _is_kept(key)}
            | ({"hoodie.table.version": version} if version else {}),
        )

    def _has_key(self) -> bool:
        try:
            return bool(MetaClient.open(self.storage).config.key_fields)
        except TableNotFound:
            return bool(_first(self.own, RECORD_KEY))

    def _check_same(self, config: TableConfig) -> None:
        """A table that is there keeps its keys and partitions; options that say otherwise are a mistake."""
        for what, keys, there in (
            ("record key", RECORD_KEY, config.key_fields),
            ("partition", PARTITION_PATH, config.partition_fields),
        ):
            given = _words(_first(self.own, keys))
            if given and given != there:
                raise InvalidRequest(
                    f"the table's {what} is {','.join(there) or 'none'}, not {','.join(given)}",
                    hint=f"Leave {keys[0]} out: the table knows it.",
                )


def _first(options: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
    return next((options[key] for key in keys if options.get(key)), None)


def _words(text: str | None) -> tuple[str, ...]:
    """Names between commas; types of partition columns (`day:TIMESTAMP`) belong to key generators of other writers."""
    return tuple(part.strip().partition(":")[0] for part in (text or "").split(",") if part.strip())


def _table_type(name: str | None) -> str:
    if name is None:
        return "mor"
    try:
        return _TABLE_TYPES[name.upper()]
    except KeyError:
        raise InvalidRequest(f"{name!r} is no table type", hint="Use MERGE_ON_READ or COPY_ON_WRITE.") from None


def _index(options: Mapping[str, str]) -> str | None:
    kind = options.get("hoodie.index.type")
    if kind is None:
        return None
    engine = options.get("hoodie.index.bucket.engine", "SIMPLE").upper() if kind.upper() == "BUCKET" else None
    for name, pair in INDEXES.items():
        if pair == (kind.upper(), engine):
            return name
    return kind.lower()


def _is_kept(key: str) -> bool:
    """Whether an option of the first write belongs to the table: its own properties, and how keys are made."""
    declared = {name for one in options_of(TableConfig).values() for name in one.keys}
    return key not in _NOT_KEPT and (key in declared or key.startswith("hoodie.keygen.timebased."))
