"""Running plans that other processes made: compactions, log compactions, clusterings and cleans, as they appear.

Any number of processes may watch a table. The process that creates a plan's heartbeat has claimed it; the others leave
it alone until the heartbeat stops, and then undo what was half done and begin anew. So a watcher is never the only
writer: with the first plan that it runs, a table of a single writer becomes one with optimistic concurrency control. A
plan that fails is tried again after ever longer waits: the cause may be gone by then, and a watcher that stops trying
would leave the plan pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from threading import Event

from lakebed.errors import ConflictError, InvalidRequest, LakebedError
from lakebed.model.instant import Action, Instant
from lakebed.services.services import Services
from lakebed.txn.options import MODE, Concurrency, TxnOptions

PLANS = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN)
_MOST_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one plan: the completed instant, or the reason why there is none.

    Without a plan it is an error in reading the timeline.
    """

    planned: Instant | None
    completed: Instant | None = None
    error: LakebedError | None = None

    @property
    def busy(self) -> bool:
        """Whether another process runs the plan, or a write conflicted with it: nothing is wrong."""
        return isinstance(self.error, ConflictError)


@dataclass(slots=True)
class Watcher:
    """Runs the plans of one table, round after round."""

    services: Services
    _rounds: int = 0
    _failures: dict[str, int] = field(default_factory=dict)
    _not_before: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mode = TxnOptions.from_properties(self.services.properties).concurrency
        if mode is Concurrency.SINGLE_WRITER:
            raise InvalidRequest(f"a watcher runs plans of other writers and is not the only writer, as {MODE}={mode}")
        self.services = replace(self.services, txn_context=replace(self.services.txn_context, among_others=True))

    def once(self) -> Iterator[Outcome]:
        """Run every plan that is there now, oldest first, unless another process runs it."""
        self._rounds += 1
        for planned in self.services.client.reload().timeline.pending.of_actions(*PLANS):
            requested_time = planned.requested_time
            if self._rounds < self._not_before.get(requested_time, 0):
                continue
            outcome = self._run(planned)
            if outcome.error is not None and not outcome.busy:
                self._failures[requested_time] = self._failures.get(requested_time, 0) + 1
                self._not_before[requested_time] = self._rounds + min(2 ** self._failures[requested_time], _MOST_ROUNDS)
            yield outcome

    def _run(self, planned: Instant) -> Outcome:
        try:
            [completed] = self.services.run(planned)
        except LakebedError as error:
            return Outcome(planned, error=error)
        return Outcome(planned, completed)

    def watch(self, interval_s: float, stop: Event, report: Callable[[Outcome], None]) -> None:
        """Round after round until `stop` is set; a store that does not answer is waited for."""
        while not stop.is_set():
            try:
                for outcome in self.once():
                    report(outcome)
                    if stop.is_set():
                        return
            except LakebedError as error:
                report(Outcome(None, error=error))
            stop.wait(interval_s)
