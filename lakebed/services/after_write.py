"""Table services right after a write, where the options enable them.

The write is committed by then, so a service that fails is a warning and no error: its plan stays on the timeline, and
the next process that runs the service runs it.
"""

from __future__ import annotations

import warnings

from lakebed.config.clustering_options import ClusteringOptions
from lakebed.config.compaction_options import CompactionOptions, Strategy
from lakebed.config.upkeep_groups import UpkeepGroups
from lakebed.errors import LakebedError
from lakebed.model.instant import Action
from lakebed.services.archival import archive
from lakebed.services.archival_policy import is_archive_due
from lakebed.services.cleaning import clean, is_clean_due
from lakebed.services.services import Services
from lakebed.txn.mode import txn_context_for
from lakebed.txn.txn_context import TxnContext
from lakebed.write.writer_context import WriterContext


def after_write(services: Services, written: WriterContext | None = None) -> None:
    """Run the services that are due after a write; `written` is the write's context, which has read the options."""
    try:
        upkeep, txn_context = _settings(services, written)
    except LakebedError as error:
        warnings.warn(f"the write is done, but not the upkeep after it: {error}", UserWarning, stacklevel=3)
        return
    _merge_logs(services, upkeep.compaction)
    _cluster(services, upkeep.clustering)
    _tidy(services, upkeep, txn_context)


def _settings(services: Services, written: WriterContext | None) -> tuple[UpkeepGroups, TxnContext]:
    """The options of upkeep and how it commits: those of the write, unless the table's own have changed since."""
    config = services.client.config
    if written is not None and written.client.config.properties == config.properties:
        return written.upkeep, written.txn_context
    upkeep = UpkeepGroups.from_properties({**config.properties, **services.properties})
    return upkeep, txn_context_for(services.client, services.properties, services.txn_context)


def _merge_logs(services: Services, options: CompactionOptions) -> None:
    try:
        wanted = options.inline or options.schedule_inline or options.log_inline or options.log_enabled
        if wanted and services.client.config.is_mor:
            _compact(services, options)
    except LakebedError as error:
        warnings.warn(f"the write is done, but not the compaction after it: {error}", UserWarning, stacklevel=4)


def _compact(services: Services, options: CompactionOptions) -> None:
    if options.inline:
        services.compact(options.strategy, force=False)
    elif options.schedule_inline:
        services.plan_compaction(options.strategy, force=False)
    if options.log_inline:  # its own plans only: a full one may be meant for another process
        pending = [i for i in services.pending_compactions() if i.action is Action.LOG_COMPACTION]
        services.run((*pending, *services.plan_compaction(Strategy.LOG).instants))
    elif options.log_enabled:
        services.plan_compaction(Strategy.LOG)


def _cluster(services: Services, options: ClusteringOptions) -> None:
    try:
        if options.inline:
            services.cluster(force=False)
        elif options.schedule_inline:
            services.plan_clustering(force=False)
    except LakebedError as error:
        warnings.warn(f"the write is done, but not the clustering after it: {error}", UserWarning, stacklevel=4)


def _tidy(services: Services, upkeep: UpkeepGroups, txn_context: TxnContext) -> None:
    """Clean and archive, where the names on the timeline show that there may be something to do.

    The table is in memory as the write left it: reading it again would slow down every write for the few that have
    something to do.
    """
    client = services.client
    try:
        cleaning, archiving, ttl = upkeep.cleaning, upkeep.archiving, upkeep.ttl
        if ttl.inline and ttl.days >= 0:
            services.drop_expired_partitions()
        if cleaning.automatic and is_clean_due(client, cleaning):
            clean(client.reload(), txn_context, cleaning, incremental=True)
        if archiving.automatic and is_archive_due(client, archiving):
            archive(client.reload(), txn_context, archiving)
    except LakebedError as error:
        warnings.warn(f"the write is done, but not the tidying after it: {error}", UserWarning, stacklevel=5)
