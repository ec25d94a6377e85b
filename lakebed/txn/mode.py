"""The concurrency mode belongs to the table: who else may write is one fact for all of its writers.

    hoodie.properties    hoodie.write.concurrency.mode    left out by tables of a single writer
                         hoodie.write.lock.provider       with several writers: the lock that all of them take

    table's / call's     none            single writer    optimistic                 non-blocking
    single writer        single writer   single writer    recorded: optimistic       recorded: non-blocking
    optimistic           optimistic      refused          optimistic                 refused
    non-blocking         non-blocking    refused          refused                    non-blocking

A single writer assumes that everything pending was left by a dead writer, and undoes it. So one that does not know of
other writers would undo their running work: a mode that a call requests beyond the table's is recorded in the table,
under the table lock, before the action begins, and a rollback reads the mode again under that lock. A process that
opened the table earlier finds it there at its next action. `change_mode` sets a looser mode, when nobody is writing.

Real Hudi takes a table's properties as options of its own writes: it uses this mode and this lock, and refuses options
that contradict them. It cannot write to a table that names a mode with several writers and no lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakebed.config.option import options_of
from lakebed.config.table_config import TableConfig, TableVersion
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import HEARTBEAT_DIR, is_instant_time
from lakebed.storage.storage import Storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import load_table_config, update_properties
from lakebed.txn.lock_types import lock_for, word_for_tables
from lakebed.txn.options import HUDI_LOCKS, LOCK_PROVIDER, MODE, Concurrency, FailedWrites, LockKind, TxnOptions
from lakebed.txn.txn_context import TxnContext

_DECLARED = options_of(TxnOptions)
_KEYS = frozenset(key for one in _DECLARED.values() for key in one.keys)
_POLICY = _DECLARED["failed_writes"].keys
MODE_KEYS = frozenset((*_DECLARED["concurrency"].keys, *_POLICY))
"""The options that state who else may write, and so what may be undone."""
_ON_PURPOSE = (
    't.services.set_concurrency("{}"), or `lakebed concurrency PATH {}` in the shell, when nobody else is writing'
)


# What the table states


def table_mode(config: TableConfig) -> Concurrency:
    """The mode that the table keeps; one that keeps none is a single writer's, as it is to Hudi."""
    found = _DECLARED["concurrency"].read(config.properties)
    return found if isinstance(found, Concurrency) else Concurrency.SINGLE_WRITER


def mode_named(name: str) -> Concurrency:
    """A mode by its name, in any case."""
    found = _DECLARED["concurrency"].read({MODE: name})
    if not isinstance(found, Concurrency):
        raise InvalidRequest(f"{name!r} is no concurrency mode", hint=f"Use one of: {', '.join(Concurrency)}.")
    return found


def mode_properties(mode: Concurrency, lock: str) -> dict[str, str]:
    """A mode as table properties. A single writer's has none: Hudi would refuse another mode in a later write."""
    return {MODE: mode.upper(), LOCK_PROVIDER: word_for_tables(lock)} if mode.has_others else {}


def shared_lock(storage: Storage, version: TableVersion) -> LockKind:
    """The lock for several writers that real Hudi can take, too: its storage lock does not know local disks."""
    is_hudis = not version.has_native_logs
    return LockKind.FILE_SYSTEM if is_hudis and storage.is_local else LockKind.STORAGE


# What holds for a call


def txn_context_for(client: MetaClient, properties: Mapping[str, str], base: TxnContext | None = None) -> TxnContext:
    """How the transactions of a call are run: by the table's settings, overridden by the options of the call.

    Refuses options that the table's mode does not allow. `base` has the lock, clock and options of the caller.
    """
    base = base or TxnContext.of(client.storage)
    requested = {key: value for key, value in properties.items() if key in _KEYS}
    known = {key: value for key, value in client.config.properties.items() if key in _KEYS and key != MODE}
    concurrency = _DECLARED["concurrency"].read({**base.options.to_properties(), **requested})
    mode = mode_in_force(client.config, replace(base, options=replace(base.options, concurrency=concurrency)))
    if mode.has_others:  # a policy from the time when the table had a single writer
        known = {
            key: value for key, value in known.items() if key not in _POLICY or value.upper() != FailedWrites.EAGER
        }
    options = _options(base, {**known, **requested})
    if mode.has_others and not any(LOCK_PROVIDER in one for one in (known, requested, base.options.to_properties())):
        options = replace(options, lock_provider=shared_lock(client.storage, client.config.version))
    lock = base.lock
    if _lock_settings(options) != _lock_settings(base.options):
        lock = lock_for(client.storage, options, base.clock, base.sleep, {**client.config.properties, **properties})
    txn_context = replace(base, options=options, lock=lock)
    require_mode(client.config, txn_context)
    if table_mode(client.config).has_others and LOCK_PROVIDER in known:
        _require_lock(known[LOCK_PROVIDER], options)
    return txn_context


def mode_in_force(config: TableConfig, txn_context: TxnContext) -> Concurrency:
    """The table's mode, or the stricter one that a call requests."""
    table = table_mode(config)
    requested = _requested_mode(table, txn_context)
    return table if requested is None or table.has_others else requested


def policy(config: TableConfig, txn_context: TxnContext) -> FailedWrites:
    """When pending writes of others are undone: at once only where there are no others."""
    has_others, requested = mode_in_force(config, txn_context).has_others, txn_context.options.failed_writes
    if requested is None or (requested is FailedWrites.EAGER and has_others):
        return FailedWrites.LAZY if has_others else FailedWrites.EAGER
    return requested


def require_mode(config: TableConfig, txn_context: TxnContext) -> Concurrency:
    """The mode of a call on a table; `InvalidRequest` when the call requests a looser mode, or another kind."""
    table = table_mode(config)
    requested, mode = _requested_mode(table, txn_context), mode_in_force(config, txn_context)
    if requested is not None and requested is not mode:
        what = "others may be writing to it" if not requested.has_others else "two kinds of writers do not go together"
        on_purpose = _ON_PURPOSE.format(requested, requested)
        raise InvalidRequest(
            f"the table's concurrency mode is {table}, not {requested}: {what}",
            hint=f"Leave {MODE} out: the table knows it. To change it for all: {on_purpose}.",
        )
    _require_ordering(config, mode)
    if mode.has_others and txn_context.options.failed_writes is FailedWrites.EAGER:
        raise InvalidRequest(
            f"{_POLICY[0]}=EAGER would undo the running writes of others, and the table's writers are {mode}",
            hint=f"Leave it out: LAZY undoes what has no heartbeat any more. With one writer only: "
            f"{_ON_PURPOSE.format(Concurrency.SINGLE_WRITER, Concurrency.SINGLE_WRITER)}.",
        )
    return mode


# Changing it


def record_mode(storage: Storage, txn_context: TxnContext) -> None:
    """Before an action: record in the table a stricter mode that the call requests, so that all writers see it."""
    options = txn_context.options
    if options.concurrency is None and not txn_context.among_others and options.failed_writes is not FailedWrites.EAGER:
        return
    if not _is_news(load_table_config(storage), txn_context):
        return
    with txn_context.lock.hold() as lease:
        config = load_table_config(storage)
        if _is_news(config, txn_context):
            lease.confirm()
            update_properties(storage, mode_properties(require_mode(config, txn_context), options.lock_provider))


def change_mode(client: MetaClient, txn_context: TxnContext, mode: Concurrency) -> MetaClient:
    """Set another mode, also a looser one; refused while anybody is writing under the current one."""
    with txn_context.lock.hold() as lease:
        fresh = client.reload()
        table, version = table_mode(fresh.config), fresh.config.version
        if table is mode:
            return fresh
        _require_ordering(fresh.config, mode)
        if table.has_others:
            _refuse_running(fresh, txn_context)
        lease.confirm()
        wanted = mode_properties(mode, shared_lock(fresh.storage, version))
        if LOCK_PROVIDER in fresh.config.properties:
            wanted.pop(LOCK_PROVIDER, None)
        update_properties(fresh.storage, wanted, () if wanted else (MODE, LOCK_PROVIDER))
    return fresh.reload()


def lock_after_downgrade(client: MetaClient) -> dict[str, str]:
    """The properties by which real Hudi, which writes the lower version, takes the lock of several writers."""
    mode, lock = table_mode(client.config), shared_lock(client.storage, TableVersion.NINE)
    stated = client.config.properties.get(LOCK_PROVIDER, HUDI_LOCKS[LockKind.STORAGE])
    return mode_properties(mode, lock) if stated == HUDI_LOCKS[LockKind.STORAGE] else {}


def _is_news(config: TableConfig, txn_context: TxnContext) -> bool:
    return require_mode(config, txn_context) is not table_mode(config)


def _requested_mode(table: Concurrency, txn_context: TxnContext) -> Concurrency | None:
    if txn_context.among_others and not table.has_others:
        return txn_context.options.concurrency or Concurrency.OPTIMISTIC
    return txn_context.options.concurrency


def _options(base: TxnContext, properties: Mapping[str, str]) -> TxnOptions:
    return TxnOptions.from_properties({**base.options.to_properties(), **properties})


def _lock_settings(options: TxnOptions) -> tuple[object, ...]:
    return options.lock_provider, options.lock_wait_ms, options.lock_validity_s, options.lock_renew_s


def _require_lock(stated: str, options: TxnOptions) -> None:
    """Refuses another lock than the table's: a lock that the other writers do not take excludes nobody."""
    if _DECLARED["lock_provider"].read({LOCK_PROVIDER: stated}) != options.lock_provider:
        raise InvalidRequest(
            f"the writers of the table are kept apart by {stated}, not by {options.lock_provider}",
            hint=f"Leave {LOCK_PROVIDER} out: the table knows it.",
        )


def _require_ordering(config: TableConfig, mode: Concurrency) -> None:
    if mode is Concurrency.NON_BLOCKING and not config.ordering_fields:
        raise InvalidRequest(
            "writers that do not wait for each other need an ordering field, by which the later row is known",
            hint=f"Use {Concurrency.OPTIMISTIC}, or make the table with ordering=...",
        )


def _refuse_running(client: MetaClient, txn_context: TxnContext) -> None:
    """Under the lock: no heartbeat is fresh. An action that begins later sees the new mode."""
    beats = [info for info in client.storage.list(HEARTBEAT_DIR) if is_instant_time(info.name)]
    now = txn_context.store_clock(client.storage).now_ms() if beats else 0
    running = [beat.name for beat in beats if now - beat.modified_ms <= txn_context.options.heartbeat_expiry_ms]
    if running:
        raise ConflictError(
            f"{running[0]} is under way, and its writer expects other writers",
            hint="Let it finish, or let its heartbeat run out; then try again.",
        )
