"""The check of a table: every invariant that readers rely on is verified, and violations are reported, not raised.

    properties   whole, checksum, no rewrite left half done
    timeline     every instant readable; times in order; what is pending, and whether anybody still works on it
    files        what commits name is there, nothing else is; partitions are marked       (check_files)
    rows         files sorted and marked as they state, each key in one file group        (check_rows)

An ERROR means that some answer may be wrong or some read fail, a WARNING that work or space is wasted or another
program may be misled, INFO is for information only. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.config.read_options import ReadOptions
from lakebed.errors import ConflictError, CorruptTable, UnsupportedFormat
from lakebed.format.names import HEARTBEAT_DIR, PROPERTIES_BACKUP_FILE, PROPERTIES_FILE, TEMP_DIR, is_instant_time
from lakebed.format.table_files import CHECKSUM_KEY, parse_properties, verify_checksum
from lakebed.model.finding import Finding, Severity
from lakebed.model.instant import Action, Instant, State
from lakebed.runner import Runner
from lakebed.services.check_files import check_files
from lakebed.services.check_rows import check_rows
from lakebed.storage.local import TEMP_PREFIX, owner_of_temporary
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient

PROPERTIES = "properties are whole"
READABLE = "timeline is readable"
ORDERED = "times are in order"
PENDING = "nothing is left pending"
LEFTOVERS = "no leftovers of dead writers"

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}
_SERVICES = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN, Action.INDEXING)


def check_table(client: MetaClient, runner: Runner, options: ReadOptions | None = None) -> list[Finding]:
    """What is wrong with the table, worst first; an empty list means that nothing was found."""
    found = list(check_properties(client))
    try:
        client = client.reload()
    except CorruptTable as error:
        return found or [Finding(READABLE, Severity.ERROR, error.file or client.url, error.what, error.hint or "")]
    found += check_timeline(client)
    if not any(finding.invariant == READABLE for finding in found):  # what counts is known by the timeline alone
        found += check_files(client, options or ReadOptions())
        found += check_rows(client, runner, options or ReadOptions())
    found += check_leftovers(client)
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda finding: (_ORDER[finding.severity], finding.invariant, finding.file))


def check_properties(client: MetaClient) -> Iterator[Finding]:
    """`hoodie.properties` itself: what was opened may have come from its backup."""
    restore = "Change any property, or write with Apache Hudi: either rewrites the file."
    backup = client.storage.stat(PROPERTIES_BACKUP_FILE) is not None
    try:
        properties = parse_properties(client.storage.read(PROPERTIES_FILE), PROPERTIES_FILE)
        verify_checksum(properties, PROPERTIES_FILE)
    except FileNotFoundError:
        what = "the file is missing and its backup is used"
        yield Finding(PROPERTIES, Severity.ERROR, PROPERTIES_FILE, what, restore)
    except CorruptTable as error:
        yield Finding(PROPERTIES, Severity.ERROR, PROPERTIES_FILE, error.what, error.hint or restore)
    else:
        if CHECKSUM_KEY not in properties:
            what = "there is no checksum, so damage would not be noticed"
            yield Finding(PROPERTIES, Severity.WARNING, PROPERTIES_FILE, what, restore)
        if backup:
            what = "a rewrite of the properties was not finished"
            yield Finding(PROPERTIES, Severity.INFO, PROPERTIES_BACKUP_FILE, what, restore)


def check_timeline(client: MetaClient) -> Iterator[Finding]:
    """Every instant of the active timeline, and whether the history can be read."""
    for instant in client.timeline:
        yield from _check_instant(client, instant)
    yield from _check_completions(client)
    try:
        client.history.timeline()
    except (CorruptTable, UnsupportedFormat) as error:
        yield Finding(READABLE, Severity.ERROR, error.file or client.url, error.what, error.hint or "")


def _check_instant(client: MetaClient, instant: Instant) -> Iterator[Finding]:
    path = client.active.path(instant)
    try:
        client.plan(instant)
        body = client.body(instant)
    except ConflictError:
        return  # archived while we looked
    except (CorruptTable, UnsupportedFormat) as error:
        yield Finding(READABLE, Severity.ERROR, error.file or path, error.what, error.hint or "")
        return
    if instant.is_completed:
        if body is None and instant.action.adds_files:
            what = "the commit is empty, so which files it wrote is unknown"
            yield Finding(READABLE, Severity.ERROR, path, what, "Restore the file from a copy of the table.")
        requested_time, done = comparable(instant.requested_time), comparable(instant.completion_time or "")
        if done < requested_time:
            what = f"it completed at {instant.completion_time}, before it began"
            yield Finding(ORDERED, Severity.ERROR, path, what, "Roll the table back to a savepoint before it.")
        if instant.action is not Action.SAVEPOINT and client.active.requested(instant) is None:
            what = "there is no requested file beside the completed one"
            yield Finding(ORDERED, Severity.WARNING, path, what, "Nothing; archiving will take the instant away.")
        return
    service = instant.action in _SERVICES
    what_to_do = "Run it to the end." if service else "The next write rolls it back, unless its writer is alive."
    state = "planned and waits to be run" if instant.state is State.REQUESTED and service else "not finished"
    yield Finding(PENDING, Severity.INFO, path, f"the {instant.action} is {state}", what_to_do)


def _check_completions(client: MetaClient) -> Iterator[Finding]:
    """Two actions that complete at one time have no order, and readers need one."""
    seen: dict[str, Instant] = {}
    for instant in client.timeline.completed:
        done = instant.completion_time or ""
        other = seen.setdefault(done, instant)
        if other is not instant and other.action.adds_files and instant.action.adds_files:
            what = f"it completed at the same time as {other}"
            path = client.active.path(instant)
            yield Finding(ORDERED, Severity.ERROR, path, what, "Compact or cluster the table, which writes it anew.")


def check_leftovers(client: MetaClient) -> Iterator[Finding]:
    """Heartbeats, markers and temporary files of writers that are not running any more."""
    what_to_do = "Nothing; the next write removes it."
    requested_times = {info.name for info in client.storage.list(HEARTBEAT_DIR)}
    for info in client.storage.list(TEMP_DIR, recursive=True):
        top, _, below = info.path.removeprefix(f"{TEMP_DIR}/").partition("/")
        if below:
            requested_times.add(top)
        elif top.startswith(TEMP_PREFIX):
            owner = owner_of_temporary(top)
            if owner is None or owner.is_gone:
                yield Finding(LEFTOVERS, Severity.INFO, info.path, "a temporary of a process that is gone", what_to_do)
    for requested_time in sorted(filter(is_instant_time, requested_times)):
        if all(instant.is_completed for instant in client.timeline.at(requested_time)):
            what = f"a heartbeat or markers of {requested_time}, which is not under way"
            yield Finding(LEFTOVERS, Severity.INFO, f"{HEARTBEAT_DIR}/{requested_time}", what, what_to_do)
