"""`table.services`: table services by name, each a plan on the timeline and a run of it, here or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakebed.config.clustering_options import ClusteringOptions
from lakebed.config.compaction_options import CompactionOptions, strategy_named
from lakebed.config.option import bytes_of, warn_unknown
from lakebed.config.option_texts import option_texts
from lakebed.config.read_options import known_keys
from lakebed.config.upkeep_options import ArchiveOptions, CleanOptions, TtlOptions
from lakebed.config.write_options import WriteOptions
from lakebed.errors import InvalidRequest
from lakebed.model.instant import Action, Instant
from lakebed.runner import Runner
from lakebed.services.archival import archive
from lakebed.services.cleaning import clean, plan_clean, run_clean
from lakebed.services.clustering import cluster, run_clustering
from lakebed.services.clustering_plan import begin_clustering, explain_clustering, schedule_clustering
from lakebed.services.clustering_strategy import PlannedClustering
from lakebed.services.compaction import compact, run_compaction
from lakebed.services.compaction_plan import (
    PlannedCompaction,
    begin_compaction,
    explain_compaction,
    refuse_uncompactable,
    schedule_compaction,
)
from lakebed.services.drop_metadata import is_half_dropped, remove_metadata
from lakebed.services.restore import restore, rollback
from lakebed.services.savepoint import create_savepoint, delete_savepoint
from lakebed.services.ttl import drop_expired
from lakebed.services.upgrade import downgrade, upgrade
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.mode import MODE_KEYS, change_mode, mode_named, record_mode, txn_context_for
from lakebed.txn.txn_context import TxnContext
from lakebed.write.job import CommitResult

Options = Mapping[str, Any] | None
Planned = PlannedCompaction | PlannedClustering | Instant | str | Iterable[Instant | str]


@dataclass(frozen=True, slots=True)
class Services:
    """The services of one table. Get it as `table.services`."""

    client: MetaClient
    txn_context: TxnContext
    """The base, which the table's settings and the options of a call override."""
    runner: Runner
    memory: int
    done: Callable[[], object]
    """Called after changes that no transaction reports, so that the table object sees them."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The options with which the table was opened; options of a call override them."""
    drop_metadata: bool = False
    """Whether the first change removes the table's metadata table, which would not be updated."""

    def on(self, spark: Any) -> Services:
        """The same services, whose work on file groups runs as tasks of a Spark session (or of another `Runner`).

        t.services.on(spark).compact(strategy="hybrid")

        Plans and commits stay here. `memory` is then the ceiling of one task instead of all together.
        """
        if isinstance(spark, Runner):
            return replace(self, runner=spark)
        if not type(spark).__module__.startswith("pyspark.sql"):
            raise InvalidRequest(f"services run on a Spark session or a runner, not on {type(spark).__name__}")
        from lakebed.spark.runner import SparkRunner

        return replace(self, runner=SparkRunner(spark))

    # ------------------------------------------------------------------ compaction
    def compact(
        self,
        strategy: str = "full",
        options: Options = None,
        memory: int | str | None = None,
        force: bool = True,
    ) -> tuple[Instant, ...]:
        """Merge logs; the completed instants. Compactions that were planned before and are not done are run first.

        `strategy` is "full" (logs into base files), "log" (small logs into larger ones) or "hybrid" (whichever suits
        each file group). A call by hand does not wait until a compaction is due; with `force=False` the table's
        trigger decides (`hoodie.compact.inline.trigger.strategy`), as it does after writes. Thresholds that choose
        among file groups hold either way. `memory` is a ceiling in bytes (or "512MB") for all groups together.
        """
        strategy_named(strategy)
        here = self.settled(options)
        refuse_uncompactable(here.client.config)
        ready = here._ready()
        finished = ready._run(ready._pending(Action.COMPACTION, Action.LOG_COMPACTION), memory)
        ready = ready._after(finished)
        chosen, files = CompactionOptions.from_properties(ready._chosen), WriteOptions.from_properties(ready._chosen)
        txns = begin_compaction(ready.client, ready.txn_context, strategy_named(strategy), chosen, force=force)
        return (*finished, *(compact(txn, self.runner, options=files, memory=self._most(memory)) for txn in txns))

    def plan_compaction(self, strategy: str = "full", options: Options = None, force: bool = True) -> PlannedCompaction:
        """Plan a compaction and save it on the timeline, for `run` here or in another process.

        planned = t.services.plan_compaction(strategy="hybrid")
        print(planned.explain())
        t.services.run(planned)
        """
        here = self.settled(options)
        chosen, ready = CompactionOptions.from_properties(here._chosen), here._ready()
        return schedule_compaction(ready.client, ready.txn_context, strategy_named(strategy), chosen, force=force)

    def explain_compaction(
        self, strategy: str = "full", options: Options = None, force: bool = True
    ) -> PlannedCompaction:
        """What `plan_compaction` would decide and why; nothing is saved."""
        here = self.settled(options)
        chosen = CompactionOptions.from_properties(here._chosen)
        return explain_compaction(here.client, here.txn_context.clock, strategy_named(strategy), chosen, force=force)

    def pending_compactions(self) -> tuple[Instant, ...]:
        """Compactions and log compactions on the timeline that are not done, oldest first."""
        return self._now()._pending(Action.COMPACTION, Action.LOG_COMPACTION)

    def run(
        self,
        planned: Planned,
        options: Options = None,
        memory: int | str | None = None,
    ) -> tuple[Instant, ...]:
        """Run what was planned, named by the plan, its instants or their requested times; the completed instants."""
        here = self.settled(options)
        instants = here._instants(planned)
        return here._ready()._run(instants, memory)

    def _run(self, instants: Iterable[Instant], memory: int | str | None) -> tuple[Instant, ...]:
        """Run plans of the timeline, in this order."""
        chosen, most = self._chosen, self._most(memory)
        files = WriteOptions.from_properties(chosen)
        client, txn_context, runner = self.client, self.txn_context, self.runner
        completed = []
        for instant in instants:
            if instant.action is Action.CLUSTERING:
                found = run_clustering(client, instant, txn_context, runner, properties=chosen, memory=most)
            elif instant.action is Action.CLEAN:
                found = run_clean(client, instant, txn_context)
            else:
                found = run_compaction(client, instant, txn_context, runner, options=files, memory=most)
            completed.append(found)
        return tuple(completed)

    def _most(self, memory: int | str | None) -> int:
        return bytes_of(memory) if memory is not None else self.memory

    def _pending(self, *actions: Action) -> tuple[Instant, ...]:
        """What is requested or inflight in the table as it was read, oldest first."""
        return self.client.timeline.pending.of_actions(*actions).instants

    def _instants(self, planned: Planned) -> list[Instant]:
        if isinstance(planned, PlannedCompaction | PlannedClustering):
            return list(planned.instants)
        wanted = [planned] if isinstance(planned, Instant | str) else list(planned)
        if all(isinstance(one, Instant) for one in wanted):
            return [one for one in wanted if isinstance(one, Instant)]
        timeline = self.client.timeline
        found = []
        for one in wanted:
            instant = one if isinstance(one, Instant) else timeline.find(one)
            if instant is None or instant.is_completed:
                raise InvalidRequest(f"nothing is planned under {one}", hint="See t.inspect.timeline().")
            found.append(instant)
        return found

    # ------------------------------------------------------------------ clustering
    def cluster(
        self, options: Options = None, memory: int | str | None = None, force: bool = True
    ) -> tuple[Instant, ...]:
        """Rewrite small file groups into larger ones whose rows are in order; the completed instants.

        Clusterings that were planned before and are not done are run first. In the LSM layout rows stay in key order;
        elsewhere `hoodie.clustering.plan.strategy.sort.columns` and `hoodie.layout.optimize.strategy` set the order.
        Under consistent hashing buckets are split and merged instead, between `hoodie.bucket.index.min.num.buckets` and
        `hoodie.bucket.index.max.num.buckets`; while that is planned, writes into these buckets are refused.
        With `force=False` nothing happens before `hoodie.clustering.inline.max.commits` writes.
        """
        ready = self.settled(options)._ready()
        finished = ready._run(ready._pending(Action.CLUSTERING), memory)
        ready = ready._after(finished)
        chosen, clustering = ready._chosen, ClusteringOptions.from_properties(ready._chosen)
        txn = begin_clustering(ready.client, ready.txn_context, clustering, chosen, force=force)
        if txn is None:
            return finished
        return (*finished, cluster(txn, self.runner, properties=chosen, memory=self._most(memory)))

    def plan_clustering(self, options: Options = None, force: bool = True) -> PlannedClustering:
        """Plan a clustering and save it on the timeline, for `run` here or in another process."""
        here = self.settled(options)
        clustering, ready = ClusteringOptions.from_properties(here._chosen), here._ready()
        return schedule_clustering(ready.client, ready.txn_context, clustering, ready._chosen, force=force)

    def explain_clustering(self, options: Options = None, force: bool = True) -> PlannedClustering:
        """What `plan_clustering` would decide and why; nothing is saved."""
        here = self.settled(options)
        chosen = here._chosen
        return explain_clustering(here.client, ClusteringOptions.from_properties(chosen), chosen, force=force)

    def pending_clusterings(self) -> tuple[Instant, ...]:
        """Clusterings on the timeline that are not done, oldest first."""
        return self._now()._pending(Action.CLUSTERING)

    # ------------------------------------------------------------------ options and the table of now
    def settled(self, options: Options = None) -> Services:
        """The same services on the table as it is now, with the options of a call on top of those it was opened with.

        This is where the table's concurrency mode and the one that the call requests are combined, for every service;
        options that the mode does not allow are refused.
        """
        texts = option_texts(options)
        warn_unknown(texts, known_keys(), stacklevel=3)
        now, properties = self._now(), {**self.properties, **texts}
        txn_context = txn_context_for(now.client, properties, self.txn_context)
        return replace(now, properties=properties, txn_context=txn_context)

    def _now(self) -> Services:
        """The same services on the table as it is now, which the table object sees from here on, too."""
        client = self.client.reload()
        self.txn_context.notify(client)
        return replace(self, client=client)

    def _after(self, done: tuple[Instant, ...]) -> Services:
        """The same services on the table as actions left it: if there were any, the table is read again to plan."""
        return self.settled() if done else self

    def _entered(self) -> Services:
        """Settled services that are about to change the table: the mode that they request is recorded in it first."""
        record_mode(self.client.storage, self.txn_context)
        return self

    def _ready(self) -> Services:
        """The same, without a metadata table where the caller drops it, or a crash left half of it."""
        self._entered()
        if not (self.drop_metadata or is_half_dropped(self.client)):
            return self
        return replace(self, client=remove_metadata(self.client, self.txn_context), drop_metadata=False)

    @property
    def _chosen(self) -> dict[str, str]:
        return {**self.client.config.properties, **self.properties}

    # ------------------------------------------------------------------ cleaning and archiving
    def clean(self, options: Options = None) -> tuple[Instant, ...]:
        """Remove files that no retained state needs; the completed cleans, none when there is nothing to remove.

        `hoodie.clean.policy` decides what is retained. Cleans that were planned and not finished are run first.
        """
        here = self.settled(options)
        chosen, ready = CleanOptions.from_properties(here._chosen), here._ready()
        return clean(ready.client, ready.txn_context, chosen)

    def plan_clean(self, options: Options = None) -> Instant | None:
        """Plan a clean and save it on the timeline, for `run` here or in another process; None if nothing can go."""
        here = self.settled(options)
        chosen, ready = CleanOptions.from_properties(here._chosen), here._ready()
        ready.txn_context.require_metadata_writer(ready.client)
        return plan_clean(ready.client, ready.txn_context, chosen)

    def archive(self, options: Options = None) -> tuple[Instant, ...]:
        """Move old actions from the active timeline into the history; the actions that were moved."""
        here = self.settled(options)
        chosen = ArchiveOptions.from_properties(here._chosen)
        return archive(here._entered().client, here.txn_context, chosen)

    def drop_expired_partitions(self, days: int | None = None, options: Options = None) -> CommitResult | None:
        """Delete partitions that nobody wrote to for so many days; None when there is none."""
        retain = {} if days is None else {"hoodie.partition.ttl.strategy.days.retain": str(days)}
        here = self.settled({**option_texts(options), **retain})
        chosen, more, ready = TtlOptions.from_properties(here._chosen), here.properties, here._ready()
        return drop_expired(ready.client, ready.txn_context, chosen, self.runner, properties=more, memory=self.memory)

    # ------------------------------------------------------------------ going back
    def savepoint(self, comment: str = "", instant: str | None = None) -> Instant:
        """Protect the table as it is, or as it was at a write that is still retained, from cleaning and archiving."""
        here = self.settled()._entered()
        return create_savepoint(here.client, here.txn_context, comment, instant)

    def delete_savepoint(self, savepoint: Instant | str) -> None:
        """Delete a savepoint: its files are cleaned and its write is archived as any other."""
        here = self.settled()._entered()
        delete_savepoint(here.client, here.txn_context, _time(savepoint))

    def restore(self, savepoint: Instant | str | None = None) -> Instant:
        """Restore the table to a savepoint, by default the newest. Later writes are gone for good.

        A restore that died half way is finished by the next call.
        """
        ready = self.settled()._ready()
        done = restore(ready.client, ready.txn_context, None if savepoint is None else _time(savepoint))
        self.done()
        return done

    def rollback(self, instant: Instant | str) -> Instant | None:
        """Undo a write that is pending, a plan that is not run, or the newest completed write."""
        ready = self.settled()._ready()
        done = rollback(ready.client, ready.txn_context, _time(instant))
        self.done()
        return done

    # ------------------------------------------------------------------ versions
    def upgrade(self, to: int = 10, drop_metadata: bool = False) -> None:
        """Upgrade the table to version 9 or 10: native logs need version 10. No row and no file changes.

        A metadata table is not carried over: `drop_metadata=True` removes it first.
        """
        here = self.settled()._entered()
        upgrade(here.client, here.txn_context, to, drop_metadata=drop_metadata or self.drop_metadata)
        self.done()

    def downgrade(self, to: int = 9, drop_metadata: bool = False) -> None:
        """Downgrade the table to version 9 or 8, for programs that do not support the higher ones.

        From version 10 slices with native logs are compacted and the logs removed, so times before this cannot be
        travelled to. Between 9 and 8 only properties change. What the lower version cannot express is refused before
        anything is done. A metadata table is not carried over: `drop_metadata=True` removes it first.
        """
        here, drop = self.settled()._entered(), drop_metadata or self.drop_metadata
        downgrade(here.client, here.txn_context, to, self.runner, memory=self.memory, drop_metadata=drop)
        self.done()

    # ------------------------------------------------------------------ who may write
    def set_concurrency(self, mode: str) -> None:
        """Set the concurrency mode for all writers of the table, from now on; this can also set a looser one.

        t.services.set_concurrency("optimistic_concurrency_control")

        Modes are `single_writer`, `optimistic_concurrency_control` and `non_blocking_concurrency_control`. While
        anybody is writing to a table with several writers this is refused.
        """
        wanted = mode_named(mode)
        others = {key: value for key, value in self.properties.items() if key not in MODE_KEYS}
        client = self.client.reload()
        change_mode(client, txn_context_for(client, others, self.txn_context), wanted)
        self.done()


def _time(instant: Instant | str) -> str:
    return instant if isinstance(instant, str) else instant.requested_time
