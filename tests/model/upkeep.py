"""Random table services in any order: planned, run late, in another order, twice, taken back, cleaned, archived."""

from __future__ import annotations

import random

import lakebed
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.model.actions import CleanMetadata
from lakebed.model.instant import Action
from lakebed.runner import LocalRunner
from lakebed.storage.open import open_storage
from tests.model.kinds import Kind
from tests.model.writes import BY_HAND, Writes

SPLIT = {
    "hoodie.parquet.max.file.size": "1000",
    "hoodie.bucket.index.split.threshold": "1.0",
    "hoodie.bucket.index.max.num.buckets": "8",
}
MERGE = {"hoodie.bucket.index.min.num.buckets": "1"}
Phase = tuple[int, int, tuple[str, ...]]
_PLANS = ("plan_compaction", "plan_compaction", "run_compaction", "drop_plan", "compact", "archive")
_RUNS = ("run_clean", "run_compaction", "compact", "upsert")
_CLEANS = ("plan_clean", "plan_clean", "run_clean", "clean")
HABITS: tuple[tuple[Phase, ...], ...] = (
    (),
    ((3, 8, ("upsert",)), (2, 3, ("log_compact",)), (1, 3, ("upsert",)), (1, 2, ("clean",))),
    ((2, 6, ("upsert",)), (1, 3, ("log_compact",)), (2, 7, (*_PLANS, *_CLEANS, "upsert"))),
    (
        (2, 5, ("upsert",)),
        (1, 2, ("log_compact",)),
        (1, 3, ("plan_clean", "plan_compaction")),
        (1, 3, (*_RUNS, "upsert")),
    ),
    ((1, 3, ("tiny_logs", "upsert")), (1, 2, ("log_compact", "compact", "reopen"))),
    ((1, 2, ("upsert",)), (1, 2, ("alter", "promote")), (1, 4, (*_PLANS, "upsert")), (0, 2, _CLEANS)),
)
"""What tables go through again and again: phases of so many to so many actions, each one of these. A history without
a habit takes everything as it comes."""
POLICIES = ("KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS")


class Upkeep(Writes):
    """A table that is written to and looked after, in any order."""

    def __init__(self, kind: Kind, seed: int) -> None:
        super().__init__(kind, seed)
        self.asks = random.Random(seed + 1)
        """Chance of questions, apart from that of steps: what is asked changes nothing."""
        self.oldest = ""
        """When the oldest action completed whose state is retained."""
        self._cleans: set[str] = set()
        self.savepoints: list[tuple[str, int]] = []
        self.archives_often = self.chance.random() < 0.3
        self.plans_often = self.chance.random() < 0.5
        self.habit = self.chance.choice(HABITS)
        self._next: list[str] = []
        self.reopen()

    def reopen(self) -> None:
        self.table = lakebed.open(self.url, options=BY_HAND)
        self.table._runner = LocalRunner(threads=1)

    @property
    def version(self) -> int:
        return int(self.table.config.version)

    # ------------------------------------------------------------------ one step
    def step(self) -> str:
        """One write or one service; what was done."""
        services = self.services()
        name = self.usual([*services, *self.operations()]) if self.instants and self.chance.random() < 0.85 else ""
        if not self.instants or (name and name not in services) or (not name and self.chance.random() < 0.5):
            if self.table.services.pending_clusterings():
                self.table.services.run(self.table.services.pending_clusterings())  # writes would be refused
            return self.write(name)
        name = name or self.pick(services)
        did = getattr(self, f"serve_{name}")()
        self.notice_cleans()
        if self.archives_often:
            self.serve_archive()
        return f"{name} {did}" if did else name

    def usual(self, possible: list[str]) -> str:
        """What the habit of this table says comes next; nothing where that cannot be."""
        if not self._next:
            for least, most, names in self.habit:
                self._next += self.chance.choices(names, k=self.chance.randint(least, most))
        name = self._next.pop(0) if self._next else ""
        return name if name in possible else ""

    def finish(self) -> None:
        """Whatever is planned can be run, in any order, and nothing blocks the next plan."""
        services = self.table.refresh().services
        plans = [*services.pending_compactions(), *services.pending_clusterings(), *self.pending_cleans()]
        for plan in self.chance.sample(plans, len(plans)):
            services.run(plan)
        if self.kind.table_type == "mor":
            services.compact()
        self.notice_cleans()

    def services(self) -> list[str]:
        """What may be done to this table besides writes."""
        names = ["clean", "archive", "savepoint", "restore", "rollback", "versions", "reopen"]
        names += ["plan_clean", "run_clean"] * 2
        if self.kind.table_type == "mor":
            names += ["compact", "log_compact", "log_compact", "plan_compaction", "run_compaction"]
            names += ["plan_compaction", "drop_plan", "run_again"] if self.plans_often or self.habit else []
        if self.kind.index != "bucket" and not self.model.repeats:
            names += ["cluster", "plan_clustering"]
        return names

    def serve_reopen(self) -> None:
        self.reopen()

    # ------------------------------------------------------------------ compaction
    def serve_compact(self) -> str:
        done = self.table.services.compact(self.strategy(), self.stretch(), self.memory())
        return " ".join(map(str, done))

    def serve_log_compact(self) -> str:
        planned = self.table.services.plan_compaction("log", self.stretch())
        return " ".join(map(str, self.table.services.run(planned, memory=self.memory())))

    def serve_plan_compaction(self) -> str:
        return " ".join(map(str, self.table.services.plan_compaction(self.strategy(), self.stretch()).instants))

    def serve_run_compaction(self) -> str | None:
        pending = self.table.services.pending_compactions()
        return str(self.table.services.run(self.chance.choice(pending))) if pending else None

    def serve_drop_plan(self) -> str | None:
        """Take back a plan that nobody has run."""
        pending = self.table.services.pending_compactions()
        if not pending:
            return None
        plan = self.chance.choice(pending)
        self.table.services.rollback(plan)
        return str(plan)

    def serve_run_again(self) -> str | None:
        """Run a plan that is run already: done again or refused, it changes nothing."""
        pending = self.table.services.pending_compactions()
        if not pending:
            return None
        plan = self.chance.choice(pending)
        self.table.services.run(plan)
        try:
            self.table.services.run(plan)
        except (InvalidRequest, ConflictError) as error:
            return f"{plan} {type(error).__name__}"
        return str(plan)

    def strategy(self) -> str:
        return self.chance.choice(["full", "log", "hybrid"])

    def stretch(self) -> dict[str, str]:
        """Options by which a log compaction takes this or that stretch of logs: those up to the size of one of them."""
        options = {"hoodie.log.compaction.blocks.threshold": self.chance.choice(["2", "2", "3"]), **BY_HAND}
        known = {info.name: info.size for info in open_storage(self.url).list("", recursive=True)}
        slices = [found["logs"] for found in self.table.refresh().inspect.file_slices().to_pylist() if found["logs"]]
        if slices and self.chance.random() < 0.8:
            sizes = [known.get(name, 0) for name in self.chance.choice(slices)]
            options["lakebed.log.compaction.small.size"] = str(self.chance.choice([*sizes, 2 * max(sizes)]))
        return options

    # ------------------------------------------------------------------ clustering
    def serve_cluster(self) -> str:
        return " ".join(map(str, self.table.services.cluster(self.order(), self.memory())))

    def serve_plan_clustering(self) -> str:
        return " ".join(map(str, self.table.services.plan_clustering(self.order()).instants))

    def order(self) -> dict[str, str]:
        if self.kind.index == "consistent_bucket":
            return self.chance.choice([SPLIT, MERGE])
        if self.kind.layout == "lsm_tree":
            return {}
        columns = self.chance.choice(["v", "id,v", "txt"])
        return {
            "hoodie.clustering.plan.strategy.sort.columns": columns,
            "hoodie.layout.optimize.strategy": self.chance.choice(["linear", "z-order", "hilbert"]),
        }

    # ------------------------------------------------------------------ cleaning and archiving
    def serve_clean(self) -> str:
        options = self.retention()
        done = self.table.services.clean(options)
        return f"{options['hoodie.clean.policy']} {options['hoodie.clean.commits.retained']} {len(done)}"

    def serve_plan_clean(self) -> str:
        return str(self.table.services.plan_clean(self.retention()))

    def serve_run_clean(self) -> str | None:
        pending = self.pending_cleans()
        return str(self.table.services.run(self.chance.choice(pending))) if pending else None

    def pending_cleans(self) -> list[str]:
        rows = self.table.inspect.timeline().to_pylist()
        return [row["instant"] for row in rows if row["action"] == Action.CLEAN and not row["completion"]]

    def retention(self) -> dict[str, str]:
        retained = self.chance.choice(["1", "1", "1", "2", "4"])
        return {
            "hoodie.clean.policy": self.chance.choice(POLICIES),
            "hoodie.clean.commits.retained": retained,
            "hoodie.clean.fileversions.retained": retained,
        }

    def notice_cleans(self) -> None:
        """What cleans that completed say they retain, whoever ran them: a restore finishes those that are planned."""
        for row in self.table.refresh().inspect.timeline(history=True).to_pylist():
            if row["action"] == Action.CLEAN and row["completion"] and row["instant"] not in self._cleans:
                self._cleans.add(row["instant"])
                body = self.table.inspect.body(row["instant"])
                assert isinstance(body, CleanMetadata)
                self.forget(body.earliest_to_retain or "")

    def forget(self, earliest: str = "") -> None:
        """States before this action are gone; without one, all but the newest."""
        known = {
            row["instant"]: row["completion"] or "" for row in self.table.inspect.timeline(history=True).to_pylist()
        }
        self.oldest = max(self.oldest, known.get(earliest) or max(known.values()))

    def serve_archive(self) -> str:
        least = self.chance.choice([3, 6])
        options = {
            "hoodie.keep.min.commits": str(least),
            "hoodie.keep.max.commits": str(least + 2),
            "hoodie.clean.commits.retained": "2",
        }
        return str(len(self.table.services.archive(options)))

    # ------------------------------------------------------------------ going back
    def serve_savepoint(self) -> str | None:
        if self.savepoints and self.chance.random() < 0.4:
            self.table.services.delete_savepoint(self.savepoints.pop(0)[0])
            return "deleted"
        if (self.savepoints and self.savepoints[-1][1] == len(self.instants)) or self.completions[-1] < self.oldest:
            return None
        try:
            made = self.table.services.savepoint("model", self.instants[-1])
        except ConflictError:
            return "refused while a clean is planned that takes its files"
        self.savepoints.append((made.requested_time, len(self.instants)))
        return made.requested_time

    def serve_restore(self) -> str | None:
        if not self.savepoints or self.chance.random() < 0.5:
            return None
        name, count = self.savepoints[-1]
        self.table.services.restore(name)
        self.truncate(count)
        return name

    def serve_rollback(self) -> str | None:
        """The newest action, if it is a write that nothing protects and nothing was built on."""
        newest = max(self.table.inspect.timeline().to_pylist(), key=lambda row: row["instant"])
        last = self.instants[-1]
        if newest["instant"] != last or len(self.instants) < 2 or self.completions[-1] <= self.oldest:
            return None
        if any(count >= len(self.instants) for _, count in self.savepoints):
            return None
        self.table.services.rollback(last)
        self.truncate(len(self.instants) - 1)
        return last

    def truncate(self, count: int) -> None:
        del self.instants[count:], self.completions[count:], self.shapes[count:]
        self.model.go_back(count)
        self.columns = list(self.shapes[-1])
        self.savepoints = [(name, own) for name, own in self.savepoints if own <= count]

    def serve_versions(self) -> str | None:
        """Between 8, 9 and 10, as it comes; native logs that plans or savepoints hold keep a table at 10."""
        held = self.savepoints or self.table.services.pending_compactions() or self.table.services.pending_clusterings()
        if self.chance.random() < 0.5 or (held and self.version == 10):
            return None
        before = self.version
        to = self.chance.choice([version for version in (8, 9, 10) if version != before])
        if to == 8 and self.kind.merge.endswith("fill"):  # has no form there
            return None
        if to > before:
            self.table.services.upgrade(to=to)
        else:
            self.table.services.downgrade(to=to)
            if before == 10:
                self.forget()
        self.reopen()
        return f"{before} to {self.version}"
