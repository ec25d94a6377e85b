"""From one table version to another, forth and back.

     9 ──► 10   a property: old inline logs stay, native ones join them
    10 ──► 9    a version 9 reader takes a native log for a base file, so none may be left:
                finish what is pending ─► compact every slice with native logs ─► remove those logs (a clean)
                ─► under the lock, with nothing pending and no native log in any folder: the property

Each step leaves a table that is right, so a downgrade that died is just called again. A writer that began under the
other version cannot commit any more. The layout stays: sortedness is a fact of each file, whatever the version.
"""

from __future__ import annotations

from lakebed.config.table_config import TableVersion
from lakebed.config.write_options import WriteOptions
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import parse_log_file
from lakebed.model.files import FileSlice, LogKind
from lakebed.model.instant import Action
from lakebed.runner import Runner
from lakebed.services.cleaning import remove_files, run_clean
from lakebed.services.compaction import run_compaction
from lakebed.services.compaction_plan import full_plan
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from lakebed.txn.control import Control
from lakebed.txn.failed_writes import clean_up
from lakebed.txn.transaction import schedule
from lakebed.view.partitions import StorageLister
from lakebed.write.create import DRAFT_PROPERTY

VERSION = "hoodie.table.version"
INITIAL_VERSION = "hoodie.table.initial.version"


def upgrade(client: MetaClient, control: Control, to: int) -> MetaClient:
    """Give the table a higher version; the table as it is then."""
    if not _is_a_step(client, to, up=True):
        return client
    control.require_metadata_writer(client)
    with control.lock.hold() as lease:
        lease.confirm()
        update_properties(client.storage, {VERSION: str(int(TableVersion.TEN)), DRAFT_PROPERTY: "1"})
    return client.reload()


def downgrade(
    client: MetaClient,
    control: Control,
    to: int,
    runner: Runner,
    *,
    options: WriteOptions | None = None,
    memory: int = 256 << 20,
) -> MetaClient:
    """Give the table a lower version; the table as it is then."""
    if not _is_a_step(client, to, up=False):
        return client
    control.require_metadata_writer(client)
    client = clean_up(client, control)
    _refuse_what_cannot_go(client)
    for instant in client.timeline.pending.of_actions(Action.COMPACTION, Action.LOG_COMPACTION):
        run_compaction(client, instant, control, runner, options=options, memory=memory)
    for instant in client.timeline.pending.of_actions(Action.CLEAN):
        run_clean(client, instant, control)
    planned = schedule(client, Action.COMPACTION, lambda fresh, _: full_plan(fresh, has_native_logs), control)
    if planned is not None:
        run_compaction(client, planned, control, runner, options=options, memory=memory)
    client = client.reload()
    writes = client.completed_writes()
    if writes:
        remove_files(client, native_logs(client), control, retain=writes[-1])
    with control.lock.hold() as lease:
        fresh = client.reload()
        _refuse_what_cannot_go(fresh)
        _refuse_what_came(fresh)
        lease.confirm()
        changes = {VERSION: str(int(TableVersion.NINE))}
        if fresh.config.properties.get(INITIAL_VERSION) == str(int(TableVersion.TEN)):
            changes[INITIAL_VERSION] = changes[VERSION]  # programs that do not know version 10 look at this one, too
        update_properties(fresh.storage, changes, (DRAFT_PROPERTY,))
    return fresh.reload()


def has_native_logs(piece: FileSlice) -> bool:
    """Whether a slice has logs that a version 9 reader would not know."""
    return any(log.native for log in piece.log_files)


def native_logs(client: MetaClient) -> dict[str, list[str]]:
    """The native logs in every partition, of whatever slice, by name."""
    lister = StorageLister(client.storage)
    found: dict[str, list[str]] = {}
    for partition in lister.partitions():
        names = (info.name for info in lister.files(partition))
        found[partition] = [name for name in names if (log := parse_log_file(name)) is not None and log.native]
    return {partition: names for partition, names in found.items() if names}


def _is_a_step(client: MetaClient, to: int, *, up: bool) -> bool:
    """Whether there is something to do; refuses what is not known how to do."""
    version = int(client.config.version)
    if version == to:
        return False
    known = [int(item) for item in TableVersion]
    if to not in known:
        raise InvalidRequest(f"there is no table version {to}", hint=f"Versions are: {', '.join(map(str, known))}.")
    if (to > version) != up:
        raise InvalidRequest(f"the table has version {version}", hint=f"Use {'downgrade' if up else 'upgrade'}.")
    if {version, to} != {int(TableVersion.NINE), int(TableVersion.TEN)}:
        raise InvalidRequest(
            f"from version {version} to {to} payload classes, merge settings and indexes change their form",
            hint="lakebed goes between 9 and 10 only; for the rest use Apache Hudi's own upgrade.",
        )
    return True


def _refuse_what_cannot_go(client: MetaClient) -> None:
    """What a version 9 table could not hold, and no compaction can turn into something else."""
    for names in native_logs(client).values():
        changes = [name for name in names if (log := parse_log_file(name)) is not None and log.kind is LogKind.CDC]
        if changes:
            raise InvalidRequest("the table has native change logs, which version 9 does not know", file=changes[0])
    for instant, savepoint in client.savepoints():
        held = [name for names in savepoint.files.values() for name in names]
        native = [name for name in held if (log := parse_log_file(name.rpartition("/")[2])) is not None and log.native]
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
        raise ConflictError("another writer added a native log meanwhile", file=f"{partition}/{names[0]}")
