"""Planted damage, one kind at a time: each is found under its name, and a table without any gives no findings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lakebed
from lakebed.cli.main import app
from lakebed.datafile import sorted_check
from lakebed.format.names import PROPERTIES_FILE
from lakebed.format.table_files import CHECKSUM_KEY, parse_properties, render_properties
from lakebed.model.actions import ActionBody
from lakebed.model.finding import Finding, Severity
from lakebed.model.instant import Instant
from lakebed.services import check, check_files, check_rows
from lakebed.storage.local import LocalStorage
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from lakebed.txn.txn_context import TxnContext
from tests.conftest import GOLDEN_NAMES
from tests.simulation.write_cases import FIRST, KINDS, data, fill

OLD = "20200101000000000"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of every kind with a base file per group and two writes on top."""
    root = tmp_path_factory.mktemp("pristine")
    for kind in KINDS:
        storage = LocalStorage(root / kind)
        fill(storage, kind)
        lakebed.open(root / kind).upsert(data([("k4", 3, "p0", 444), ("k5", 3, "p1", 555)]))
    return root


@pytest.fixture
def table(pristine: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A private copy to be damaged; a merge-on-read table unless a test asks for another."""
    return Path(shutil.copytree(pristine / getattr(request, "param", "mor-v2"), tmp_path / "t"))


def found(table: Path) -> list[Finding]:
    return lakebed.open(table).check()


def named(findings: list[Finding], invariant: str, severity: Severity = Severity.ERROR) -> list[Finding]:
    chosen = [finding for finding in findings if finding.invariant == invariant]
    assert chosen, findings
    assert {finding.severity for finding in chosen} == {severity}, findings
    assert all(finding.what and finding.what_to_do and finding.file for finding in chosen)
    return chosen


def only(findings: list[Finding], invariant: str, severity: Severity = Severity.ERROR) -> Finding:
    [finding] = named(findings, invariant, severity)
    assert findings == [finding]
    return finding


def base_files(table: Path, partition: str = "p=p0") -> list[Path]:
    """Oldest first; native logs have a dot more in their names."""
    return sorted(path for path in (table / partition).glob("*.parquet") if path.name.count(".") == 1)


def logs(table: Path, partition: str = "p=p0") -> list[Path]:
    return sorted((table / partition).glob("*.log.parquet"), key=lambda path: path.name.split("_")[2])


def completed(table: Path) -> list[Path]:
    return sorted((table / ".hoodie" / "timeline").glob("*_*.*commit"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_table_gives_no_findings(pristine: Path, kind: str) -> None:
    assert found(pristine / kind) == []


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_tables_of_real_hudi_are_sound(golden: Callable[[str], Path], name: str) -> None:
    """Real tables keep the promises that are checked, whatever was done to them; what is pending is told."""
    findings = found(golden(name))
    assert [finding for finding in findings if finding.severity is not Severity.INFO] == []
    pending = MetaClient.open(LocalStorage(golden(name))).timeline.pending.instants
    assert len([finding for finding in findings if finding.invariant == check.PENDING]) == len(pending)


# ---------------------------------------------------------------------- properties and timeline


def test_properties(table: Path) -> None:
    opened = lakebed.open(table)
    file = table / PROPERTIES_FILE
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"hoodie.table.name=t", b"hoodie.table.name=u"))
    assert CHECKSUM_KEY in only(opened.check(), check.PROPERTIES).what
    file.with_name("hoodie.properties.backup").write_bytes(whole)
    named(opened.check(), check.PROPERTIES)
    file.write_bytes(whole)
    only(opened.check(), check.PROPERTIES, Severity.INFO)
    update_properties(LocalStorage(table), {})
    assert opened.check() == []
    properties = parse_properties(whole, "")
    del properties[CHECKSUM_KEY]
    file.write_bytes(render_properties(properties))
    only(found(table), check.PROPERTIES, Severity.WARNING)


@pytest.mark.parametrize("left", [0, 100])
def test_a_commit_that_is_cut_off(table: Path, left: int) -> None:
    commit = completed(table)[1]
    commit.write_bytes(commit.read_bytes()[:left])
    assert commit.name in only(found(table), check.READABLE).file


def test_a_plan_that_is_garbage(table: Path) -> None:
    (table / ".hoodie/timeline/20300101000000000.compaction.requested").write_bytes(b"not Avro")
    named(found(table), check.READABLE)


def test_times_out_of_order(table: Path) -> None:
    first, second = completed(table)[:2]
    requested_time, _, done = second.name.removesuffix(".deltacommit").partition("_")
    early = second.rename(second.with_name(f"{requested_time}_{OLD}.deltacommit"))
    assert early.name in named(found(table), check.ORDERED)[0].file
    begin_of_first = first.name.partition("_")[0]
    early.rename(second)
    first.rename(first.with_name(f"{begin_of_first}_{done}.deltacommit"))
    assert "same time" in named(found(table), check.ORDERED)[0].what


def test_a_commit_that_was_never_requested(table: Path) -> None:
    requested_time = completed(table)[1].name.partition("_")[0]
    (table / f".hoodie/timeline/{requested_time}.deltacommit.requested").unlink()
    only(found(table), check.ORDERED, Severity.WARNING)


def test_what_is_pending_and_what_is_left_lying(table: Path) -> None:
    (table / ".hoodie/timeline/20300101000000000.deltacommit.requested").touch()
    (table / ".hoodie/.heartbeat").mkdir(exist_ok=True)
    (table / ".hoodie/.heartbeat/20300101000000000").touch()
    only(found(table), check.PENDING, Severity.INFO)
    (table / f".hoodie/.heartbeat/{OLD}").touch()
    (table / f".hoodie/.temp/{OLD}").mkdir(parents=True)
    (table / f".hoodie/.temp/{OLD}/x.marker.CREATE").touch()
    assert OLD in named(found(table), check.LEFTOVERS, Severity.INFO)[0].file


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("table", KINDS, indirect=True)
def test_a_file_that_is_missing_or_short(table: Path) -> None:
    file = base_files(table)[-1]
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    assert file.name in named(found(table), check_files.NAMED_FILES)[0].file
    file.unlink()
    assert file.name in named(found(table), check_files.NAMED_FILES)[0].file


@pytest.mark.parametrize("table", ["cow"], indirect=True)
def test_an_old_version_that_is_missing(table: Path) -> None:
    file = base_files(table)[0]
    file.unlink()
    assert file.name in only(found(table), check_files.NAMED_FILES, Severity.WARNING).file


def test_a_log_that_is_missing(table: Path) -> None:
    logs(table)[0].unlink()
    named(found(table), check_files.NAMED_FILES)


def test_files_that_nobody_names(table: Path) -> None:
    file = base_files(table)[0]
    group, token, rest = file.name.split("_")
    other_attempt = shutil.copy(file, file.with_name(f"{group}_9-9-9_{rest}"))
    unknown = shutil.copy(file, file.with_name(f"{group}_{token}_20300101000000000.parquet"))
    findings = named(found(table), check_files.ORPHANS, Severity.WARNING)
    assert {Path(finding.file).name for finding in findings} == {other_attempt.name, unknown.name}
    (table / ".hoodie/timeline/20300101000000000.deltacommit.requested").touch()
    findings = named(found(table), check_files.ORPHANS, Severity.WARNING)
    assert [Path(finding.file).name for finding in findings] == [other_attempt.name], "a pending write may use it yet"


@pytest.mark.parametrize(("text", "word"), [(None, "no partition"), ("rubbish", "needs"), ("depth", "depth 7")])
def test_partition_metafiles(table: Path, text: str | None, word: str) -> None:
    metafile = table / "p=p1" / ".hoodie_partition_metadata"
    if text is None:
        metafile.unlink()
    elif text == "depth":
        metafile.write_text(metafile.read_text().replace("partitionDepth=1", "partitionDepth=7"))
    else:
        metafile.write_text(text)
    assert word in named(found(table), check_files.PARTITIONS)[0].what


class Forgets:
    """A metadata writer that leaves the metadata table behind."""

    def __call__(self, client: MetaClient, instant: Instant, body: ActionBody) -> str | None:
        return None


def test_a_metadata_table_that_was_left_behind(golden_copy: Callable[[str], Path]) -> None:
    table = golden_copy("cow_simple_v9")
    storage = LocalStorage(table)
    opened = Table(MetaClient.open(storage), txn_context=TxnContext.of(storage, before_publish=Forgets()))
    assert opened.check() == []
    row = {name: None for name in opened.schema.names if not name.startswith("_hoodie")}
    row |= {"id": "new", "ts": 9, "p": "p0"}
    schema = pa.schema([opened.schema.field(name) for name in row])
    opened.insert(pa.Table.from_pylist([row], schema=schema))
    named(opened.check(), check_files.METADATA)


def test_a_metadata_table_that_is_damaged(golden_copy: Callable[[str], Path]) -> None:
    table = golden_copy("cow_simple_v9")
    for file in (table / ".hoodie/metadata/files").glob("*.hfile"):
        file.write_bytes(file.read_bytes()[:-20])
    named(found(table), check_files.METADATA)


# ---------------------------------------------------------------------- rows


def rewritten(file: Path, change: Callable[[pa.Table], pa.Table], **footer: str) -> None:
    """The same file with other rows, its marks as they were."""
    source = pq.ParquetFile(file)
    rows = source.read()
    columns = [pq.SortingColumn(rows.schema.get_field_index("_hoodie_record_key"))]
    kept = {key.decode(): value.decode() for key, value in source.metadata.metadata.items()}
    write(file, change(rows), {**kept, **footer}, columns)


def write(file: Path, rows: pa.Table, footer: dict[str, str], sorting: list[pq.SortingColumn] | None = None) -> None:
    with pq.ParquetWriter(file, rows.schema, sorting_columns=sorting, store_schema=False) as writer:
        writer.write_table(rows)
        padding = {"padding": "x" * 9000}  # a shorter file would be another finding
        writer.add_key_value_metadata({**footer, **padding})


def test_rows_out_of_order_and_keys_twice(table: Path) -> None:
    file = max(base_files(table), key=lambda path: pq.read_metadata(path).num_rows)
    rewritten(file, lambda rows: rows.take(list(reversed(range(rows.num_rows)))))
    assert file.name in named(found(table), sorted_check.SORTED)[0].file
    rewritten(file, lambda rows: pa.concat_tables([rows.slice(0, 1), rows.slice(0, 1)]))
    assert "twice" in named(found(table), sorted_check.SORTED)[0].what


def test_footers_that_lie(table: Path) -> None:
    rewritten(base_files(table)[0], lambda rows: rows, hoodie_max_record_key="zzz")
    assert "zzz" in named(found(table), sorted_check.KEY_MARKS)[0].what


def test_a_file_without_the_mark_of_its_layout(table: Path) -> None:
    file = base_files(table)[0]
    write(file, pq.ParquetFile(file).read(), {})
    named(found(table), sorted_check.MARKED, Severity.WARNING)


def test_a_file_that_is_no_parquet(table: Path) -> None:
    file = base_files(table)[0]
    file.write_bytes(bytes(file.stat().st_size))
    named(found(table), sorted_check.READABLE)


def test_a_log_that_belongs_elsewhere(table: Path) -> None:
    first, second = logs(table)
    second.write_bytes(first.read_bytes())
    assert second.name in named(found(table), check_rows.LOG_NAMES)[0].file


@pytest.mark.parametrize("table", ["mor-v1"], indirect=True)
def test_keys_in_the_wrong_bucket_and_in_two_groups(table: Path) -> None:
    opened = lakebed.open(table)
    opened.bulk_insert(data([(f"m{i}", 1, "p0", i) for i in range(20)]))
    one, other = base_files(table)[-2:]
    assert one.name[:8] != other.name[:8]
    columns = pq.ParquetFile(other).read()
    sorting = [pq.SortingColumn(columns.schema.get_field_index("_hoodie_record_key"))]
    write(one, columns, {"lakebed.sorted": "utf8"}, sorting)
    findings = opened.check()
    assert one.name in named(findings, check_rows.BUCKETS)[0].file
    named(findings, check_rows.UNIQUE)


def test_rows_in_the_wrong_partition(table: Path) -> None:
    place = pa.array(["p=p7"])

    def moved(rows: pa.Table) -> pa.Table:
        index = rows.schema.get_field_index("_hoodie_partition_path")
        return rows.set_column(index, rows.schema.field(index), place.take([0] * rows.num_rows))

    rewritten(base_files(table)[0], moved)
    named(found(table), check_rows.PLACES)


@pytest.mark.parametrize("table", ["cow"], indirect=True)
def test_a_key_in_two_groups_of_a_sorted_table(table: Path) -> None:
    """The index of a copy-on-write table is misled by a small-file limit of nothing: an insert repeats the key."""
    opened = lakebed.open(table)
    opened.insert(data([FIRST[0]]), options={"hoodie.parquet.small.file.limit": "0"})
    finding = named(opened.check(), check_rows.UNIQUE)[0]
    assert "'k0'" in finding.what


# ---------------------------------------------------------------------- the command line


def test_the_command(table: Path) -> None:
    runner = CliRunner()
    sound = runner.invoke(app, ["check", str(table), "--json"])
    assert (sound.exit_code, json.loads(sound.stdout)) == (0, [])
    assert runner.invoke(app, ["check", str(table)]).exit_code == 0
    (table / f".hoodie/.temp/{OLD}").mkdir(parents=True)
    (table / f".hoodie/.temp/{OLD}/x.marker.CREATE").touch()
    assert runner.invoke(app, ["check", str(table)]).exit_code == 0, "worth knowing, but no error"
    (table / "p=p1" / ".hoodie_partition_metadata").unlink()
    broken = runner.invoke(app, ["check", str(table), "--json"])
    assert broken.exit_code == 1
    first, second = json.loads(broken.stdout)
    assert (first["severity"], second["severity"]) == ("error", "info")
    assert set(first) == {"invariant", "severity", "file", "what", "what_to_do"}


def test_every_invariant_is_tried_here() -> None:
    text = Path(__file__).read_text()
    for module in (check, check_files, check_rows, sorted_check):
        prefix = module.__name__.rpartition(".")[2]
        names = {name for name, value in vars(module).items() if name[0].isupper() and isinstance(value, str)}
        tried = {name for name in names if f"{prefix}.{name}" in text}
        untried = names - tried - {"READABLE"}
        assert not {name for name in untried if " " in getattr(module, name)}, untried
