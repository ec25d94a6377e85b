"""Upkeep right after a write, where the options ask for it.

The write is committed by then, so a service that fails is a warning and no error: its plan stays on the timeline, and
whoever comes next runs it.
"""

from __future__ import annotations

import warnings

from lakebed.config.clustering_options import ClusteringOptions
from lakebed.config.compaction_options import CompactionOptions, Strategy
from lakebed.config.upkeep_options import ArchiveOptions, CleanOptions, TtlOptions
from lakebed.errors import LakebedError
from lakebed.model.instant import Action
from lakebed.services.archival import archive
from lakebed.services.archival_policy import is_archive_due
from lakebed.services.cleaning import clean, is_clean_due
from lakebed.services.services import Services
from lakebed.txn.mode import txn_context_for


def after_write(services: Services) -> None:
    """Whatever is due now that a write is done."""
    _merge_logs(services)
    _cluster(services)
    _tidy(services)


def _merge_logs(services: Services) -> None:
    config = services.client.config
    try:
        options = CompactionOptions.from_properties({**config.properties, **services.properties})
        wanted = options.inline or options.schedule_inline or options.log_inline or options.log_enabled
        if wanted and config.is_mor:
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


def _cluster(services: Services) -> None:
    try:
        options = ClusteringOptions.from_properties({**services.client.config.properties, **services.properties})
        if options.inline:
            services.cluster(force=False)
        elif options.schedule_inline:
            services.plan_clustering(force=False)
    except LakebedError as error:
        warnings.warn(f"the write is done, but not the clustering after it: {error}", UserWarning, stacklevel=4)


def _tidy(services: Services) -> None:
    """Clean and archive, where the names on the timeline say that there may be something to do.

    The write left the table in hand: reading it again would cost every write for the few that have something to do.
    """
    client = services.client
    try:
        properties = {**client.config.properties, **services.properties}
        txn_context = txn_context_for(client, services.properties, services.txn_context)
        cleaning, archiving = CleanOptions.from_properties(properties), ArchiveOptions.from_properties(properties)
        lifetimes = TtlOptions.from_properties(properties)
        if lifetimes.inline and lifetimes.days >= 0:
            services.drop_expired_partitions()
        if cleaning.automatic and is_clean_due(client, cleaning):
            clean(client.reload(), txn_context, cleaning, incremental=True)
        if archiving.automatic and is_archive_due(client, archiving):
            archive(client.reload(), txn_context, archiving)
    except LakebedError as error:
        warnings.warn(f"the write is done, but not the tidying after it: {error}", UserWarning, stacklevel=5)
