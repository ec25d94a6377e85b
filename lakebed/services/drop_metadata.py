"""Removing the metadata table: a table whose writer does not update it must not have one.

    under the lock   properties: no metadata partitions, no indexes, and a mark   ─► from here on nobody reads them
                     delete .hoodie/metadata and the definitions of its indexes
                     properties: without the mark

A half deleted metadata table would be used by a program that enables it later, so the mark makes the next write finish
the removal. Real Hudi builds a new one by itself when it writes with `hoodie.metadata.enable`; it fails on definitions
of indexes that are not there, so secondary and expression indexes have to be created anew.
"""

from __future__ import annotations

from dataclasses import replace

from lakebed.format.names import INDEX_DEFS_FILE, METADATA_DIR
from lakebed.storage.storage import folders_below
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from lakebed.txn.rollback import delete_all
from lakebed.txn.txn_context import TxnContext
from lakebed.write.writer_context import WriterContext

PARTITIONS = "hoodie.table.metadata.partitions"
INFLIGHT = "hoodie.table.metadata.partitions.inflight"
INDEX_DEFS = "hoodie.table.index.defs.path"
DROPPING = "lakebed.metadata.dropping"


def is_half_dropped(client: MetaClient) -> bool:
    """Whether a process began to remove the metadata table and died before it was done."""
    return DROPPING in client.config.properties


def _has_metadata(client: MetaClient) -> bool:
    return bool(client.config.metadata_partitions or client.config.metadata_partitions_inflight)


def without_metadata_table(context: WriterContext, *, drop: bool = False) -> WriterContext:
    """A writer's context without the metadata table, where the caller drops it or a crash left half of it.

    Errors of the call were raised when its context was made: a write that is refused drops nothing.
    """
    if not (drop or context.write_options.drop_metadata or is_half_dropped(context.client)):
        return context
    return replace(context, client=remove_metadata(context.client, context.txn_context))


def remove_metadata(client: MetaClient, txn_context: TxnContext) -> MetaClient:
    """Remove the metadata table; the table as it is then."""
    storage = client.storage
    if not (_has_metadata(client) or is_half_dropped(client)):
        return client
    with txn_context.lock.hold() as lease:
        fresh = client.reload()
        if not is_half_dropped(fresh) and not (_has_metadata(client) and _has_metadata(fresh)):
            return fresh  # another process removed it; a metadata table that was built since is not the one to remove
        lease.confirm()
        update_properties(storage, {DROPPING: "true"}, (PARTITIONS, INFLIGHT, INDEX_DEFS))
        storage.delete([INDEX_DEFS_FILE])
        delete_all(storage, [info.path for info in storage.list(METADATA_DIR, recursive=True)])
        storage.delete([f"{folder}/_" for folder in folders_below(storage, METADATA_DIR)])  # empty ones, on a disk
        lease.confirm()
        update_properties(storage, {}, (DROPPING,))
    return client.reload()
