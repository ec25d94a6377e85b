"""From when on every state is whole: what cleans of all kinds say, archived or not, undone or gone back behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.errors import InvalidRequest
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import CleanMetadata, CleanPartition, CleanPlan, InstantRef, RestorePlan, SavepointMetadata
from lakebed.model.instant import Action, Instant, State
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.history_columns import BODIES_SCHEMA
from lakebed.timeline.history_writer import flush
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.retention import EVER, WHOLE_SINCE, before, require_readable, whole_since
from tests.unit.txn.tables import new_table

OLD_KEY = "lakebed.earliest.retained"
BY_COMMITS, BY_VERSIONS = "KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS"


def t(number: int) -> str:
    return f"{20260101000000000 + number}"


class Past:
    """A timeline made by hand; times are small numbers."""

    def __init__(self) -> None:
        self.storage: MemoryStorage = new_table()
        for number in (10, 20, 30, 40):
            self.done(number, number + 5)

    def put(self, instant: Instant, body: bytes = b"") -> None:
        done = f"_{instant.completion_time}" if instant.completion_time else ""
        state = "" if instant.is_completed else f".{instant.state}"
        self.storage.put(f".hoodie/timeline/{instant.requested_time}{done}.{instant.action}{state}", body)

    def done(self, requested_time: int, completion: int, action: Action = Action.COMMIT, body: bytes = b"") -> None:
        self.put(Instant(t(requested_time), action, State.COMPLETED, t(completion)), body)

    def clean(
        self, requested_time: int, *, retain: int | None = None, removed: bool = True, **extra: str
    ) -> tuple[CleanPlan, CleanMetadata]:
        """A clean as it is planned and as it is reported; `extra` says what lakebed's say beside."""
        policy = BY_VERSIONS if retain is None else BY_COMMITS
        earliest = InstantRef(t(retain), "commit", "COMPLETED") if retain is not None else None
        names = ("x.parquet",) if removed else ()
        said = {key.replace("__", "."): value for key, value in extra.items()}
        plan = CleanPlan(policy, earliest, "", {"p0": names}, extra=said)
        parts = {"p0": CleanPartition("p0", policy, names, names)}
        done = CleanMetadata(t(requested_time), 1, len(names), t(retain) if retain is not None else "", "", parts, said)
        return plan, done

    def cleaned(self, requested_time: int, **more: object) -> None:
        _, body = self.clean(requested_time, **more)  # type: ignore[arg-type]
        self.done(requested_time, requested_time + 1, Action.CLEAN, encode_body(body, Action.CLEAN, State.COMPLETED))

    def restored(self, requested_time: int, savepoint: int) -> None:
        plan = encode_body(RestorePlan((), t(savepoint)), Action.RESTORE, State.REQUESTED)
        self.put(Instant(t(requested_time), Action.RESTORE, State.REQUESTED), plan)
        self.done(requested_time, requested_time + 1, Action.RESTORE)

    def forget(self, requested_time: int) -> None:
        for info in list(self.storage.list(".hoodie/timeline")):
            if info.name.startswith(t(requested_time)):
                self.storage.delete([info.path])

    def archived(self, until: int) -> None:
        """All that began by then moves into the history, as Hudi's archiving does it: cleans as well."""
        client = self.client
        done = [i for i in client.timeline.completed if i.requested_time <= t(until)]
        planned = [client.active.requested(i) for i in done]
        columns = [
            [i.requested_time for i in done],
            [i.completion_time for i in done],
            [str(i.action) for i in done],
            [client.storage.read(client.active.path(i)) for i in done],
            [client.storage.read(client.active.path(i)) if i else None for i in planned],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, BODIES_SCHEMA, strict=True)]
        flush(client.history, pa.Table.from_arrays(arrays, schema=BODIES_SCHEMA))
        for instant in done:
            self.forget(int(instant.requested_time) - int(t(0)))

    @property
    def client(self) -> MetaClient:
        return MetaClient.open(self.storage)

    @property
    def since(self) -> str | None:
        return whole_since(self.client)


def test_without_a_clean_everything_is_there() -> None:
    past = Past()
    assert past.since is None
    past.cleaned(50, retain=30, removed=False)
    assert past.since is None, "a clean that took nothing"


def test_what_a_clean_says_itself_counts_whatever_came_before() -> None:
    past = Past()
    past.cleaned(46, retain=40)
    past.cleaned(50, retain=20, **{WHOLE_SINCE: t(25)})
    assert past.since == t(25)
    past.cleaned(60, **{WHOLE_SINCE: t(35)})
    assert past.since == t(35)


def test_a_clean_of_files_that_no_state_needs_limits_nothing() -> None:
    past = Past()
    past.cleaned(50, retain=40, **{WHOLE_SINCE: EVER})
    assert past.since is None
    past.cleaned(60, **{WHOLE_SINCE: t(35)})
    assert past.since == t(35)


def test_cleans_of_earlier_releases_name_a_write() -> None:
    past = Past()
    past.cleaned(50, **{OLD_KEY: t(30)})
    assert past.since == t(35)


def test_a_clean_by_commits_leaves_what_its_earliest_write_found() -> None:
    past = Past()
    past.cleaned(50, retain=30)
    assert past.since == t(25), "from the write before on nothing changed until the earliest one completed"
    past.forget(10)
    past.forget(20)
    assert past.since == before(t(35)) == t(34), "nobody knows what was before"


@pytest.mark.parametrize("archived", [10, 20, 30])
def test_the_write_before_the_earliest_one_may_be_archived(archived: int) -> None:
    past = Past()
    past.done(5, 29)
    past.cleaned(50, retain=30)
    assert past.since == t(29)
    past.archived(archived)
    assert past.since == t(29)


def test_the_greatest_of_several_limits_counts() -> None:
    """Retaining more from now on does not bring back what was taken."""
    past = Past()
    past.cleaned(46, retain=40)
    past.cleaned(50, retain=20)
    assert past.since == t(35)


def test_a_service_that_was_under_way_at_the_earliest_write_may_have_replaced_more() -> None:
    """Hudi goes by begins: it takes what a compaction replaced that was planned before, and finished after."""
    past = Past()
    past.done(28, 42)
    past.cleaned(50, retain=30)
    assert past.since == t(42)


def test_a_clean_by_file_versions_that_says_nothing() -> None:
    past = Past()
    past.cleaned(46, retain=20)
    past.cleaned(50)
    past.done(60, 65)
    assert past.since == t(45), "what was the present when it was planned"


def test_a_clean_that_is_being_run_may_have_begun_to_delete() -> None:
    past = Past()
    plan, _ = past.clean(50, **{WHOLE_SINCE: t(35)})
    past.put(Instant(t(50), Action.CLEAN, State.REQUESTED), encode_body(plan, Action.CLEAN, State.REQUESTED))
    assert past.since is None
    assert whole_since(past.client, planned=True) == t(35)
    past.put(Instant(t(50), Action.CLEAN, State.INFLIGHT))
    assert past.since == t(35)


def test_the_present_is_whole_though_the_retained_write_was_undone() -> None:
    past = Past()
    past.cleaned(50, retain=40)
    past.forget(40)
    assert past.since == t(35)


@pytest.mark.parametrize("archived", [False, True])
def test_a_table_that_went_back_to_a_savepoint_behind_the_clean(archived: bool) -> None:
    past = Past()
    past.cleaned(50, retain=40)
    past.forget(30)
    past.forget(40)
    past.restored(60, savepoint=20)
    for number in range(70, 150, 10):
        past.done(number, number + 5)
    if archived:
        past.archived(90)
        assert not past.client.timeline.of_actions(Action.CLEAN, Action.RESTORE).instants
    assert past.since == t(25)


def test_cleans_that_others_archived() -> None:
    past = Past()
    past.cleaned(46, retain=40)
    past.cleaned(47, retain=20)
    for number in range(50, 150, 10):
        past.done(number, number + 5)
    past.cleaned(160, removed=False)
    past.archived(90)
    assert len(past.client.timeline.of_actions(Action.CLEAN)) == 1
    assert past.since == t(35)


def test_what_is_refused_and_what_is_not() -> None:
    past = Past()
    past.cleaned(50, **{WHOLE_SINCE: t(35)})
    body = SavepointMetadata("me", 0, "", {})
    past.done(10, 60, Action.SAVEPOINT, encode_body(body, Action.SAVEPOINT, State.COMPLETED))
    client = past.client
    require_readable(client, t(35), "a state")
    require_readable(client, t(15), "the state of a savepoint")
    require_readable(client, t(24), "the same state, until the next write completed")
    with pytest.raises(InvalidRequest, match="all changes since it is no longer there"):
        require_readable(client, t(15), "all changes since it", and_later=True)
    for at in (14, 25, 34):
        with pytest.raises(InvalidRequest, match=f"the state is no longer.*is {t(30)} .completed {t(35)}.*And so on"):
            require_readable(client, t(at), "the state", " And so on.")


def test_a_table_that_hudi_cleaned_and_archived(golden: Callable[[str], Path]) -> None:
    client = MetaClient.open(LocalStorage(golden("mor_maint_v9")))
    assert client.completion_time("20261115102840197") == "20261115102841919"
    assert client.completion_time("20261115102839183") == "20261115102840042"
    assert whole_since(client) == "20261115102840042", "the state that the earliest retained write found"
    assert whole_since(MetaClient.open(LocalStorage(golden("mor_avro_v9")))) is None
