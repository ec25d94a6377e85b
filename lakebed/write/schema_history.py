"""Keeping the history of a table's schemas where real Hudi finds it: with an action of the active timeline.

Under schema-on-read all versions of the schema are in `.hoodie/.schema`, in a file named by the action that saved it.
Hudi ignores files whose action has left the active timeline, and so saves the history again with every write. Without
that, Hudi would lose the history when the last ALTER TABLE is archived, and with it the columns of older files.
"""

from __future__ import annotations

from contextlib import suppress

from lakebed.errors import StorageUnavailable
from lakebed.format.names import SCHEMA_DIR, instant_file_name, parse_instant_file
from lakebed.model.instant import Action, Instant, State
from lakebed.model.internal_schema import SchemaHistory, render_schema_history
from lakebed.storage.storage import Storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.timeline import Timeline
from lakebed.txn.instants import successor

_SPARE = 3
"""How many histories of archived actions are kept, for readers that opened the table a while ago."""


def save_history(storage: Storage, requested_time: str, history: SchemaHistory) -> None:
    """Save the history under a write that is about to be published; a rollback of that write removes it."""
    done = Instant(requested_time, Action.SCHEMA_COMMIT, State.COMPLETED, successor(requested_time))
    for state in (State.REQUESTED, State.INFLIGHT):
        storage.put(f"{SCHEMA_DIR}/{instant_file_name(Instant(requested_time, Action.SCHEMA_COMMIT, state))}", b"")
    storage.put(f"{SCHEMA_DIR}/{instant_file_name(done)}", render_schema_history(history).encode())


def forget_histories(client: MetaClient) -> None:
    """Delete histories that were saved under archived actions, except the newest of them."""
    with suppress(StorageUnavailable):
        saved = {info.path: parse_instant_file(info.name) for info in client.storage.list(SCHEMA_DIR)}
        known = Timeline.of(one for one in saved.values() if one is not None)
        gone = [one.requested_time for one in known.completed if client.is_before_timeline(one.requested_time)]
        old = frozenset(sorted(gone)[:-_SPARE])
        paths = [path for path, one in saved.items() if one is not None and one.requested_time in old]
        if paths:
            client.storage.delete(paths)
