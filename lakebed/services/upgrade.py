"""Upgrades and downgrades between table versions.

     8 ◄─► 9    the properties that state the rule by which rows are merged (merge_properties.py), in one write;
                files stay
     9 ──► 10   a property: old inline logs stay, native ones join them
    10 ──► 9    a version 9 reader takes a native log for a base file, so none may be left:
                finish what is pending ─► compact every slice with native logs ─► remove those logs (a clean)
                ─► under the lock, with nothing pending and no native log in any folder: the property

Longer ways go step by step, and what any of the steps would refuse is refused before the first. Each step is decided
under the lock, on the table as it is then: another process may have changed its version since the call began. Each step
leaves a valid table, so a call that died is just repeated. A writer that began under the other version cannot commit
any more. The layout stays: sortedness is a property of each file, whatever the version.

Single keys under COMPLEX are the one thing in rows that depends on the version: `id:7` from version 9 on, and before
that `id:7` or `7`, depending on the program that wrote them. So an upgrade checks them; nothing rewrites them.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc

from lakebed.config.memory_plan import DEFAULT_MEMORY
from lakebed.config.table_config import TableConfig, TableVersion
from lakebed.config.write_options import WriteOptions
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import INDEX_DEFS_FILE, parse_log_file
from lakebed.format.table_files import IndexDefinition, parse_index_definitions, render_index_definitions
from lakebed.model.actions import CommitMetadata
from lakebed.model.files import FileSlice, LogKind
from lakebed.model.instant import Action
from lakebed.model.schema import RECORD_KEY, without_meta_fields
from lakebed.paths import file_name
from lakebed.read.reader_context import reader_context_of
from lakebed.read.scan import Scan
from lakebed.runner import Runner
from lakebed.services.cleaning import remove_files, run_clean
from lakebed.services.compaction import run_compaction
from lakebed.services.compaction_plan import full_plan
from lakebed.services.drop_metadata import is_half_dropped, remove_metadata
from lakebed.services.merge_properties import MYSQL_SEQUENCE, VERSION, eight_to_nine, is_mysql, nine_to_eight
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from lakebed.txn.failed_writes import clean_up
from lakebed.txn.mode import lock_after_downgrade
from lakebed.txn.transaction import schedule
from lakebed.txn.txn_context import TxnContext
from lakebed.view.file_system_view import FileSystemView
from lakebed.view.partitions import StorageLister
from lakebed.write.create.create_table import DRAFT_PROPERTY

INITIAL_VERSION = "hoodie.table.initial.version"


def upgrade(client: MetaClient, txn_context: TxnContext, to: int, *, drop_metadata: bool = False) -> MetaClient:
    """Upgrade the table; the table as it is then."""
    if not _is_a_way(client, to, up=True):
        return client
    if client.config.version < TableVersion.NINE:
        eight_to_nine(client.config)
        _refuse_plain_keys(client)
    seen = client
    client = _without_metadata(client, txn_context, drop_metadata)
    if client.config.version < TableVersion.NINE:
        client = _from_eight_to_nine(client, txn_context, seen)
    return _from_nine_to_ten(client, txn_context) if to > TableVersion.NINE else client


def downgrade(
    client: MetaClient,
    txn_context: TxnContext,
    to: int,
    runner: Runner,
    *,
    options: WriteOptions | None = None,
    memory: int = DEFAULT_MEMORY,
    drop_metadata: bool = False,
) -> MetaClient:
    """Downgrade the table; the table as it is then."""
    if not _is_a_way(client, to, up=False):
        return client
    if client.config.version > TableVersion.NINE:
        _refuse_what_cannot_go(client)
    if to < TableVersion.NINE:
        _refuse_what_eight_does_not_know(client)
        _refuse_unordered_events(client)
    seen = client
    client = _without_metadata(client, txn_context, drop_metadata)
    if client.config.version > TableVersion.NINE:
        client = _from_ten_to_nine(client, txn_context, runner, options, memory)
    return _from_nine_to_eight(client, txn_context, seen) if to < TableVersion.NINE else client


def _without_metadata(client: MetaClient, txn_context: TxnContext, drop_metadata: bool) -> MetaClient:
    if drop_metadata or is_half_dropped(client):
        client = remove_metadata(client, txn_context)
    txn_context.require_metadata_writer(client)
    return client


def _is_to_go(fresh: MetaClient, txn_context: TxnContext, before: TableVersion, after: TableVersion) -> bool:
    """Under the lock: whether this step is still to be done; `ConflictError` when the table has a third version."""
    version = fresh.config.version
    if version is after:
        return False
    if version is not before:
        raise ConflictError(
            f"the table went to version {int(version)} meanwhile, on its way from {int(before)} to {int(after)}",
            hint="Another program converts it as well; agree on a version, then try again.",
        )
    txn_context.require_metadata_writer(fresh)
    return True


def _from_eight_to_nine(client: MetaClient, txn_context: TxnContext, seen: MetaClient) -> MetaClient:
    """Definitions of indexes get a version, which those of version 8 may lack; then the properties change."""
    with txn_context.lock.hold() as lease:
        fresh = client.reload()
        if _is_to_go(fresh, txn_context, TableVersion.EIGHT, TableVersion.NINE):
            change = eight_to_nine(fresh.config)
            if _has_single_complex_key(fresh.config):
                _refuse_unseen_rows(seen, fresh)
            lease.confirm()
            indexes = _indexes(fresh)
            if any(index.version is None for index in indexes.values()):
                named = {name: replace(index, version=index.version or "V1") for name, index in indexes.items()}
                fresh.storage.put(INDEX_DEFS_FILE, render_index_definitions(named))
            update_properties(fresh.storage, change.values, change.removals)
    return client.reload()


def _from_nine_to_ten(client: MetaClient, txn_context: TxnContext) -> MetaClient:
    with txn_context.lock.hold() as lease:
        fresh = client.reload()
        if _is_to_go(fresh, txn_context, TableVersion.NINE, TableVersion.TEN):
            lease.confirm()
            update_properties(fresh.storage, {VERSION: str(int(TableVersion.TEN)), DRAFT_PROPERTY: "1"})
    return client.reload()


def _from_nine_to_eight(client: MetaClient, txn_context: TxnContext, seen: MetaClient) -> MetaClient:
    with txn_context.lock.hold() as lease:
        fresh = client.reload()
        if _is_to_go(fresh, txn_context, TableVersion.NINE, TableVersion.EIGHT):
            _refuse_what_eight_does_not_know(fresh)
            if is_mysql(fresh.config):
                _refuse_unseen_rows(seen, fresh)
            change = nine_to_eight(fresh.config)
            lease.confirm()
            update_properties(fresh.storage, change.values, change.removals)
    return client.reload()


def _from_ten_to_nine(
    client: MetaClient, txn_context: TxnContext, runner: Runner, options: WriteOptions | None, memory: int
) -> MetaClient:
    client = clean_up(client.reload(), txn_context)
    _refuse_what_cannot_go(client)
    for instant in client.timeline.pending.of_actions(Action.COMPACTION, Action.LOG_COMPACTION):
        run_compaction(client, instant, txn_context, runner, options=options, memory=memory)
    for instant in client.timeline.pending.of_actions(Action.CLEAN):
        run_clean(client, instant, txn_context)
    planned = schedule(client, Action.COMPACTION, lambda fresh, _: full_plan(fresh, has_native_logs), txn_context)
    if planned is not None:
        run_compaction(client, planned, txn_context, runner, options=options, memory=memory)
    listed = native_logs(client)
    client = client.reload()  # after the listing: what is committed since cannot be in it
    writes = client.timeline.completed.writes.in_completion_order()
    if writes:
        remove_files(client, _without_live(client, listed), txn_context, retain=writes[-1])
    with txn_context.lock.hold() as lease:
        fresh = client.reload()
        if _is_to_go(fresh, txn_context, TableVersion.TEN, TableVersion.NINE):
            _refuse_what_cannot_go(fresh)
            _refuse_what_came(fresh)
            lease.confirm()
            changes = {VERSION: str(int(TableVersion.NINE)), **lock_after_downgrade(fresh)}
            if fresh.config.properties.get(INITIAL_VERSION) == str(int(TableVersion.TEN)):
                changes[INITIAL_VERSION] = changes[VERSION]  # programs that do not know version 10 look there, too
            update_properties(fresh.storage, changes, (DRAFT_PROPERTY,))
    return fresh.reload()


def has_native_logs(file_slice: FileSlice) -> bool:
    """Whether a slice has logs that a version 9 reader would not know."""
    return any(log.native for log in file_slice.log_files)


def native_logs(client: MetaClient) -> dict[str, list[str]]:
    """The native logs in every partition, of whatever slice, by name."""
    lister = StorageLister(client.storage)
    found: dict[str, list[str]] = {}
    for partition in lister.partitions():
        names = (info.name for info in lister.files(partition))
        found[partition] = [name for name in names if (log := parse_log_file(name)) is not None and log.native]
    return {partition: names for partition, names in found.items() if names}


def _without_live(client: MetaClient, listed: dict[str, list[str]]) -> dict[str, list[str]]:
    """The logs that no current reader needs: not of a newest slice, and not of a write that is under way."""
    view = FileSystemView.of(client)
    found = {}
    for partition, names in listed.items():
        live = {log.name for file_slice in view.slices(partition) for log in file_slice.log_files}
        times = {name: parsed.requested_time for name in names if (parsed := parse_log_file(name)) is not None}
        pending = {
            requested_time
            for requested_time in times.values()
            if any(not i.is_completed for i in client.timeline.at(requested_time))
        }
        found[partition] = [
            name for name, requested_time in times.items() if name not in live and requested_time not in pending
        ]
    return found


def _is_a_way(client: MetaClient, to: int, *, up: bool) -> bool:
    """Whether there is something to do; refuses versions that are unknown or in the other direction."""
    version = int(client.config.version)
    if version == to:
        return False
    known = [int(item) for item in TableVersion if item.readable]
    if to not in known:
        raise InvalidRequest(f"there is no table version {to}", hint=f"Versions are: {', '.join(map(str, known))}.")
    if (to > version) != up:
        raise InvalidRequest(f"the table has version {version}", hint=f"Use {'downgrade' if up else 'upgrade'}.")
    return True


def _indexes(client: MetaClient) -> dict[str, IndexDefinition]:
    if client.config.index_defs_path is None:
        return {}
    try:
        return parse_index_definitions(client.storage.read(INDEX_DEFS_FILE), INDEX_DEFS_FILE)
    except FileNotFoundError:
        return {}


def _refuse_unseen_rows(seen: MetaClient, fresh: MetaClient) -> None:
    """Under the lock: all rows were checked, unless a write completed since. Services add none."""
    known = {instant.requested_time for instant in seen.completed_writes()}
    for instant in fresh.completed_writes():
        body = fresh.body(instant)
        if instant.requested_time not in known and not (isinstance(body, CommitMetadata) and body.compacted):
            raise ConflictError(f"{instant} completed while rows were looked through", hint="Try again.")


def _has_single_complex_key(config: TableConfig) -> bool:
    return config.keygen_type == "COMPLEX" and len(config.key_fields) == 1


def _refuse_plain_keys(client: MetaClient) -> None:
    """Refuse rows whose keys version 9 writes differently: its writers would not find them and insert them again."""
    if not _has_single_complex_key(client.config):
        return
    head, hint = f"{client.config.key_fields[0]}:", "Copy the rows into a new table."
    if not client.config.populate_meta_fields:
        raise InvalidRequest("rows do not hold their keys, so nobody knows the form of those in its logs", hint=hint)
    for batch in Scan(client=client, columns=(RECORD_KEY,)).to_batches():
        plain = batch.filter(pc.invert(pc.starts_with(batch.column(RECORD_KEY), head)))
        if plain.num_rows:
            key = plain.column(RECORD_KEY)[0].as_py()
            raise InvalidRequest(f"the key {key!r} would be {head + key!r} in version 9", hint=hint)


def _refuse_unordered_events(client: MetaClient) -> None:
    """Refuse MySQL events without the column by which version 8 orders them: Hudi fails on them, or late ones win."""
    column, known = MYSQL_SEQUENCE, client.config.ordering_fields
    own = without_meta_fields(reader_context_of(client).schema).names if is_mysql(client.config) else []
    lacking = f"version 8 orders events of MySQL by {column!r}"
    hint = f"Write the rows again with it, as file.position, made of {', '.join(known)}."
    if own and column not in own:
        raise InvalidRequest(f"{lacking}, and the table has no such column", hint=hint)
    for batch in Scan(client=client, columns=(column, *known)).to_batches() if own else ():
        unordered = pc.is_null(batch.column(column))
        for name in known:  # a row without these as well precedes all events, in both versions
            unordered = pc.and_(unordered, pc.is_valid(batch.column(name)))
        if pc.any(unordered).as_py():
            raise InvalidRequest(f"{lacking}, which is null in {pc.sum(unordered).as_py()} rows or more", hint=hint)


def _refuse_what_eight_does_not_know(client: MetaClient) -> None:
    nine_to_eight(client.config)
    if _has_single_complex_key(client.config):
        raise InvalidRequest(
            f"the single key {client.config.key_fields[0]!r} under the COMPLEX key generator is written otherwise by "
            "programs that know no version beyond 8: they would not find the rows that are there"
        )
    later = [index.name for index in _indexes(client).values() if index.version not in (None, "V1")]
    if later and not client.config.metadata_partitions:  # else they go with the metadata table, or nothing does
        raise InvalidRequest(
            f"the index {later[0]!r} has a form that version 8 does not know", hint="Drop it with Apache Hudi first."
        )


def _refuse_what_cannot_go(client: MetaClient) -> None:
    """Refuse what a version 9 table cannot contain and no compaction can convert."""
    for names in native_logs(client).values():
        changes = [name for name in names if (log := parse_log_file(name)) is not None and log.kind is LogKind.CDC]
        if changes:
            raise InvalidRequest("the table has native change logs, which version 9 does not know", file=changes[0])
    for instant, savepoint in client.savepoints():
        held = [name for names in savepoint.files.values() for name in names]
        native = [name for name in held if (log := parse_log_file(file_name(name))) is not None and log.native]
        if native:
            raise InvalidRequest(
                f"the savepoint {instant.requested_time} holds native logs, which version 9 does not know",
                file=native[0],
                hint="Delete the savepoint first.",
            )


def _refuse_what_came(client: MetaClient) -> None:
    """Under the lock: nothing under way that could still add a native log, and none added since they were removed."""
    pending = client.timeline.pending.instants
    if pending:
        raise ConflictError(
            f"{pending[0]} is under way", hint="Let it finish, or run it, or roll it back; then try again."
        )
    left = native_logs(client)
    if left:
        partition, names = next(iter(left.items()))
        raise ConflictError(
            "another writer added a native log meanwhile", file=f"{partition}/{names[0]}", hint="Call downgrade again."
        )
