"""Partitions with a lifetime: those that nobody wrote to for so many days are deleted, as a replacecommit.

    KEEP_BY_TIME            the days count from the partition's last write
    KEEP_BY_CREATION_TIME   from the write that created the partition, or created it anew after it was deleted

Table services rewrite rows without changing them, so they extend no lifetime (`services/partition_ages`).
"""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.config.upkeep_options import TtlOptions, TtlStrategy
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.runner import Runner
from lakebed.services.partition_ages import created, last_written
from lakebed.timeline.clock import comparable, instant_time_before
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.txn_context import TxnContext
from lakebed.write.job import CommitResult
from lakebed.write.table_writer import TableWriter
from lakebed.write.writer_context import writer_context

_DAY_MS = 24 * 3_600_000
_ATTEMPTS = 3


def expired_partitions(client: MetaClient, options: TtlOptions, now_ms: int) -> tuple[str, ...]:
    """The partitions whose days are over, oldest first; at most so many as one commit may take."""
    if options.days < 0:
        raise InvalidRequest(
            "partitions never expire", hint="Set hoodie.partition.ttl.strategy.days.retain to a number of days."
        )
    if not client.config.partition_fields:
        raise InvalidRequest("the table has no partitions that could expire")
    limit = instant_time_before(now_ms, options.days * _DAY_MS, client.config.timezone)
    ages = created(client) if options.strategy is TtlStrategy.KEEP_BY_CREATION_TIME else last_written(client)
    chosen = {p: age for p, age in ages.items() if not options.partitions or p in options.partitions}
    expired = sorted((comparable(age), partition) for partition, age in chosen.items() if comparable(age) < limit)
    return tuple(partition for _, partition in expired[: options.most])


def drop_expired(
    client: MetaClient,
    txn_context: TxnContext,
    options: TtlOptions,
    runner: Runner,
    *,
    properties: Mapping[str, str],
    memory: int,
) -> CommitResult | None:
    """Delete expired partitions; None when none is expired. One that is written to meanwhile is checked again."""
    left = _ATTEMPTS
    while expired := expired_partitions(client, options, txn_context.clock.now_ms()):
        context = writer_context(
            client, properties, {}, memory=memory, default_memory=memory, runner=runner, txn_context=txn_context
        )
        try:
            return TableWriter(context).delete_partitions(expired, as_read=True)
        except ConflictError:
            left -= 1
            if not left:
                raise
            client = client.reload()
    return None
