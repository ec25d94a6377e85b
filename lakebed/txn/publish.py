"""Publishing an action: the creation of its completed file, which is the moment at which it becomes visible.

A store that does not answer leaves the outcome unknown, which is not a failure: the file may be there, or appear a
moment later. The name has our requested and our completion time, so nobody else can create it, and a retry with the
same bytes is harmless: "exists" then means that it is ours. Only when the store never answers does the caller get
`StorageUnavailable`; nobody may delete a file of the action after that, until the timeline has been read again.
"""

from __future__ import annotations

from lakebed.errors import ConflictError, StorageUnavailable
from lakebed.format.names import instant_file_name
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import ActionBody
from lakebed.model.instant import Instant, State
from lakebed.storage.storage import Storage
from lakebed.timeline.active import complete
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.instants import completion_time
from lakebed.txn.txn_context import TxnContext

_PAUSES_S = (0.1, 0.5, 2.0)


def choose_completion(client: MetaClient, instant: Instant, body: ActionBody, txn_context: TxnContext) -> str:
    """Let the metadata table commit first, then take a time after it and after everything on the timeline."""
    after = None
    if txn_context.before_publish is not None:
        after = txn_context.before_publish(client, instant, body)
        client = client.reload()  # that took a while: other actions may have begun
    return completion_time(instant.requested_time, client.timeline, txn_context.clock, client.config.timezone, after)


def publish(
    client: MetaClient, inflight: Instant, completion: str, body: ActionBody, txn_context: TxnContext
) -> tuple[Instant, MetaClient]:
    """Create the completed file, the last step under the lock; the completed instant, and the table with it.

    `StorageUnavailable` means that the outcome is unknown.
    """
    done = Instant(inflight.requested_time, inflight.action.completes_as, State.COMPLETED, completion)
    path = f"{client.active.folder}/{instant_file_name(done)}"
    data = encode_body(body, done.action, State.COMPLETED)
    after = client.changed({done: len(data)})
    for pause in (*_PAUSES_S, None):
        try:
            return complete(client.storage, inflight, completion, data, client.active.folder), after
        except ConflictError:
            if _holds(client.storage, path, data):
                return done, after
            raise
        except StorageUnavailable as error:
            if _holds(client.storage, path, data):
                return done, after
            if pause is None:
                raise StorageUnavailable(
                    "the store did not say whether the action was published",
                    file=path,
                    hint="Nothing was deleted. Open the table again to see whether it is there.",
                ) from error
            txn_context.sleep(pause)
    raise AssertionError("unreachable")


def _holds(storage: Storage, path: str, data: bytes) -> bool:
    try:
        return storage.read(path) == data
    except (FileNotFoundError, StorageUnavailable):
        return False
