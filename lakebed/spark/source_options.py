"""The options of `format("lakebed")`, under Hudi's own names, and the table that they select.

Spark lower-cases option keys, and no key of lakebed's has capitals. Keys that begin with `lakebed.storage.` go to the
store without that prefix, as `storage_options` of `lakebed.open` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakebed.config.option import WORDS, options_of, warn_unknown
from lakebed.config.read_options import ReadOptions, TableConfig, known_keys
from lakebed.errors import InvalidRequest, TableNotFound
from lakebed.model.partition_time import TIME_PREFIXES
from lakebed.model.record_key import LOGICAL_TIMESTAMPS, PLAIN_SINGLE_KEY, SLASH_DATES
from lakebed.paths import file_name
from lakebed.read.plan import Query, query_named
from lakebed.read.scan import Scan
from lakebed.services.drop_metadata import without_metadata_table
from lakebed.services.services import Services
from lakebed.storage.open import open_storage
from lakebed.storage.storage import Storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.options import LOCK_PROVIDER
from lakebed.txn.txn_context import TxnContext
from lakebed.write.create.create_options import (
    KEYGEN_CLASS,
    PARTITION_PATH,
    RECORD_KEY,
    SETTLED,
    TABLE_NAME,
    VERSION,
    keygen_option,
    stated,
)
from lakebed.write.create.create_table import NewTable, create_table, schema_of
from lakebed.write.operation import Operation
from lakebed.write.table_writer import TableWriter
from lakebed.write.writer_context import WriterContext, check_options, writer_context

PATH = "path"
FILTER = "lakebed.filter"
STORAGE = "lakebed.storage."
AS_OF = "as.of.instant"
QUERY_TYPE = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"
OPERATION = "hoodie.datasource.write.operation"
_ALSO_KEPT = ("hoodie.index.bucket.engine", LOCK_PROVIDER, LOGICAL_TIMESTAMPS, SLASH_DATES, PLAIN_SINGLE_KEY)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one read or write."""

    options: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", {key.lower(): value for key, value in self.options.items()})

    @property
    def path(self) -> str:
        if self.options.get(PATH):
            return self.options[PATH]
        raise InvalidRequest(
            "no path was given", hint="Use load(path) or save(path); a SQL statement takes it as WITH ('path' = '...')."
        )

    @property
    def storage(self) -> Storage:
        storage = {key[len(STORAGE) :]: value for key, value in self.options.items() if key.startswith(STORAGE)}
        return open_storage(self.path, storage)

    @property
    def own(self) -> dict[str, str]:
        """The options that lakebed or Hudi define."""
        return {
            key: value
            for key, value in self.options.items()
            if key.startswith(("hoodie.", "lakebed.")) and not key.startswith(STORAGE) and key != PATH
        }

    # ------------------------------------------------------------------ reading
    def scan(self) -> Scan:
        """The rows that a read is for."""
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
        self._warn_of_unknown()
        return Scan(client, query, None, self.options.get(FILTER), as_of, start, end, options=self._read_options)

    # ------------------------------------------------------------------ writing
    def operation(self, overwrite: bool) -> Operation:
        """What a write does. `mode("overwrite")` replaces all rows, unless the operation option limits it to some."""
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
            check_options(self.own)  # a rejected write creates no table
            _ = self._memory
            create_table(storage, self.new_table(storage, schema))
            client = MetaClient.open(storage)
        self._check_same(client.config)
        return client

    def writer(self, client: MetaClient) -> TableWriter:
        """How the table is written to; a metadata table is dropped first where the options request it."""
        self._warn_of_unknown()
        context = writer_context(client, {}, self.own)
        return TableWriter(without_metadata_table(context))

    @staticmethod
    def services(context: WriterContext) -> Services:
        """The table services that run after a write."""
        now = context.client.reload()
        txn_context = TxnContext.of(now.storage)
        return Services(now, txn_context, context.runner, context.memory, lambda: None, context.properties)

    @property
    def _memory(self) -> int:
        return self._read_options.memory

    @property
    def _read_options(self) -> ReadOptions:
        declared = {key for one in options_of(ReadOptions).values() for key in one.keys}
        return ReadOptions().override({key: value for key, value in self.own.items() if key in declared})

    def _warn_of_unknown(self) -> None:
        """Warn of unknown keys: a mistyped one would otherwise be ignored silently."""
        warn_unknown(self.own, {key.lower() for key in known_keys()} | {FILTER}, stacklevel=3)

    def new_table(self, storage: Storage, schema: pa.Schema) -> NewTable:
        """The table that the options describe."""
        own = self.own
        version = stated(own, VERSION)
        return NewTable(
            name=stated(own, TABLE_NAME) or file_name(storage.url.rstrip("/")),
            schema=schema_of(schema),
            record_key=(),
            log_format="v1" if version in ("8", "9") else "v2",
            properties={key: value for key, value in own.items() if _is_kept(key)},
        )

    def _has_key(self) -> bool:
        try:
            return bool(MetaClient.open(self.storage).config.key_fields)
        except TableNotFound:
            return stated(self.own, RECORD_KEY) is not None

    def _check_same(self, config: TableConfig) -> None:
        """An existing table keeps its keys and partitions; options that differ from them are an error."""
        keygen, _ = keygen_option(self.own)
        if keygen is not None and config.keygen_type not in (None, keygen):
            raise InvalidRequest(
                f"the table's key generator is {config.keygen_type}, not {keygen}",
                hint=f"Leave {KEYGEN_CLASS[-1]} out: the table knows it.",
            )
        for what, keys, there in (
            ("record key", RECORD_KEY, config.key_fields),
            ("partition", PARTITION_PATH, config.partition_fields),
        ):
            named = WORDS.parse(stated(self.own, keys) or "")
            if keys is PARTITION_PATH:
                named = tuple(word.partition(":")[0].strip() for word in named)
            if named and named != there:
                raise InvalidRequest(
                    f"the table's {what} is {','.join(there) or 'none'}, not {','.join(named)}",
                    hint=f"Leave {keys[-1]} out: the table knows it.",
                )


def _is_kept(key: str) -> bool:
    """Whether an option of the first write belongs to the table: its own properties, and how keys are made."""
    declared = {name for one in options_of(TableConfig).values() for name in one.keys}
    return key in declared or key in SETTLED or key in _ALSO_KEPT or key.startswith(TIME_PREFIXES)
