"""The entry point of every write: a table, the options it was opened with and those of the call, as one value.

    call's argument > call's options > options of open > hoodie.properties > default
                                  │
                                  ▼
    WriteOptions  UpkeepGroups  TxnOptions  IndexOptions     each parsed once; lower layers get them as values
                                  │
                                  ▼
    checks of table and options ──► WriterContext

A context is made before anything is changed: options that cannot be read, and tables that cannot be written to, are
refused here. `Table` and `format("lakebed")` both use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakebed.config.memory_plan import DEFAULT_WRITE_MEMORY
from lakebed.config.option import bytes_of
from lakebed.config.upkeep_groups import UpkeepGroups
from lakebed.config.write_options import WriteOptions
from lakebed.index.options import IndexOptions, refuse_other_index
from lakebed.model.record_key import KeyGenerator, key_generator_of
from lakebed.read.reader_context import keyed_reader_context
from lakebed.runner import LocalRunner, Runner
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.mode import txn_context_for
from lakebed.txn.options import TxnOptions
from lakebed.txn.txn_context import TxnContext
from lakebed.write.virtual_keys import refuse_other_meta_fields, refuse_unmade_keys, refuse_unstored_keys
from lakebed.write.write_checks import refuse_other_fields, refuse_unwritable

MEMORY = "lakebed.memory"


@dataclass(frozen=True, slots=True)
class WriterContext:
    """How one call writes to one table; get it from `writer_context`."""

    client: MetaClient
    txn_context: TxnContext
    write_options: WriteOptions
    index_options: IndexOptions
    upkeep: UpkeepGroups
    """What is due after the write."""
    memory: int
    """The ceiling in bytes of the whole write."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The caller's options as texts: those of `open` and those of the call, without the table's own."""
    runner: Runner = field(default_factory=LocalRunner)

    @property
    def key_generator(self) -> KeyGenerator:
        """The table's key generator, with the writer's choice whether different values may make the same key."""
        generator = key_generator_of(self.client.config, self.properties)
        return replace(generator, allows_ambiguous=self.write_options.allow_ambiguous_keys)


def writer_context(
    client: MetaClient,
    opened: Mapping[str, str],
    options: Mapping[str, str],
    *,
    memory: int | str | None = None,
    default_memory: int = DEFAULT_WRITE_MEMORY,
    runner: Runner | None = None,
    txn_context: TxnContext | None = None,
) -> WriterContext:
    """The context of a call with `options` on a table opened with `opened`; `InvalidRequest` if it may not write.

    `memory` is the call's argument, `default_memory` applies where no option sets the memory. The table's settings and
    the options override those of `txn_context`.
    """
    config, properties = client.config, {**opened, **options}
    chosen = {**config.properties, **properties}
    write_options = WriteOptions.from_properties(chosen)
    upkeep = UpkeepGroups.from_properties(chosen)
    txn_context = txn_context_for(client, properties, txn_context)
    limit = _memory(memory, properties, default_memory)
    refuse_unwritable(config)
    if not config.populate_meta_fields:
        refuse_unmade_keys(config, keyed_reader_context(client).schema)
    refuse_other_meta_fields(config, properties)
    index_options = IndexOptions.from_properties(chosen)
    refuse_unstored_keys(config, index_options)
    refuse_other_index(config, properties)
    refuse_other_fields(config, properties)
    return WriterContext(
        client, txn_context, write_options, index_options, upkeep, limit, properties, runner or LocalRunner()
    )


def check_options(properties: Mapping[str, str]) -> None:
    """Refuse options that cannot be parsed, before there is a table to check them against."""
    UpkeepGroups.from_properties(properties)
    WriteOptions.from_properties(properties)
    TxnOptions.from_properties(properties)
    IndexOptions.from_properties(properties)


def _memory(memory: int | str | None, properties: Mapping[str, str], default: int) -> int:
    chosen = memory if memory is not None else properties.get(MEMORY)
    return default if chosen is None else bytes_of(chosen)
