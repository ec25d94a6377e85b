"""From user data to rows of the table: what is taken, what is cast, and what is refused before anything is written."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from lakebed.config.read_options import TableConfig
from lakebed.errors import InvalidRequest
from lakebed.model.schema import COMMIT_TIME, PARTITION_PATH, RECORD_KEY
from lakebed.write.rows.prepare import BATCH_ROWS, Preparation, as_reader, plan_preparation, prepare

BEGIN = "20260101000000000"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("p", pa.string()),
        pa.field("v", pa.float64()),
        pa.field("s", pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])),
    ]
)


def config(**changes: str) -> TableConfig:
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.version": "9",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "p",
        "hoodie.table.keygenerator.type": "SIMPLE",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    }
    return TableConfig.from_properties(properties | {key.replace("__", "."): value for key, value in changes.items()})


def data(**changes: Any) -> pa.Table:
    columns = {
        "id": pa.array(["a", "b"]),
        "ts": pa.array([1, 2], pa.int64()),
        "p": pa.array(["x", None]),
        "v": pa.array([1.5, None]),
        "s": pa.array([{"a": 1, "b": "t"}, None], SCHEMA.field("s").type),
    }
    changed = {name: column for name, column in (columns | changes).items() if column is not None}
    return pa.table(changed)


def prepared(rows: Any, settings: TableConfig | None = None, **how: Any) -> pa.Table:
    _, reader = prepare(rows, settings or config(), SCHEMA, requested_time=BEGIN, **how)
    return reader.read_all()


def test_rows_get_key_and_path_and_the_tables_columns() -> None:
    table = prepared(data())
    assert table.schema.names == [RECORD_KEY, PARTITION_PATH, "id", "ts", "p", "v", "s"]
    assert table.column(RECORD_KEY).to_pylist() == ["a", "b"]
    assert table.column(PARTITION_PATH).to_pylist() == ["x", "__HIVE_DEFAULT_PARTITION__"]
    assert table.column("s").to_pylist() == [{"a": 1, "b": "t"}, None]


def test_columns_are_put_in_order_and_cast() -> None:
    shuffled = data(
        ts=pa.array([1, 2], pa.int16()),
        p=pa.array(["x", "x"]).dictionary_encode(),
        id=pa.array(["a", "b"], pa.large_string()),
        v=pa.array([1, 2], pa.int32()),
    ).select(["s", "v", "p", "ts", "id"])
    table = prepared(shuffled)
    assert table.schema.remove_metadata().field("v").type == pa.float64()
    assert table.select(["id", "ts", "p", "v"]).to_pylist()[1] == {"id": "b", "ts": 2, "p": "x", "v": 2.0}


def test_the_schema_grows_and_widens() -> None:
    plan = plan_preparation(config(), pa.schema([*SCHEMA, pa.field("n", pa.int32())]), pa.schema([
        *SCHEMA, pa.field("n", pa.int64()), pa.field("extra", pa.large_string()),
    ]))  # fmt: skip
    assert plan.table_schema.field("n").type == pa.int64()
    assert plan.table_schema.field("extra").type == pa.string()
    assert plan.table_schema.names[-1] == "extra"


def test_meta_columns_of_rows_that_were_read_are_made_anew() -> None:
    read = data().append_column(RECORD_KEY, pa.array(["old", "old"])).append_column(COMMIT_TIME, pa.array(["1", "1"]))
    table = prepared(read)
    assert table.column(RECORD_KEY).to_pylist() == ["a", "b"]
    assert COMMIT_TIME not in table.schema.names


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"v": None}, "lacks the column 'v'"),
        ({"id": None}, "lacks the column 'id'"),
        ({"ts": None}, "lacks the column 'ts'"),
        ({"v": pa.array(["1", "2"])}, "'v' is double in the table and string in the data"),
        ({"ts": pa.array([None, 2], pa.int64())}, "ordering column 'ts' is null in 1 of 2 rows"),
        ({"id": pa.array(["a", ""])}, "key column 'id' is null or empty in 1 of 2"),
        ({"id": pa.array(["a", None])}, "'id' may not be null and is in 1 of 2 rows"),
        ({"p": pa.array(["..", "x"])}, "partition path '..' cannot be a folder"),
        ({"p": pa.array([".hoodie/x", "x"])}, "cannot be a folder"),
        ({"V": pa.array([1, 2])}, "only by case"),
        ({"ts": pa.array([1, 2**63], pa.uint64())}, "'ts'"),
        ({"s": pa.array([{"a": None, "b": "t"}, None])}, "'s.a' may not be null and is in 1 of 2 rows"),
    ],
)
def test_what_the_table_cannot_take(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(complaint)):
        prepared(data(**changes))


def test_two_columns_of_one_name() -> None:
    rows = pa.Table.from_arrays([*data().columns, pa.array([1, 2])], [*data().schema.names, "v"])
    with pytest.raises(InvalidRequest, match="two columns called 'v'"):
        prepared(rows)


def test_a_flagged_delete_needs_no_ordering_value() -> None:
    rows = data(ts=pa.array([1, None], pa.int64()), _hoodie_is_deleted=pa.array([False, True]))
    assert prepared(rows).num_rows == 2
    rows = data(ts=pa.array([None, 1], pa.int64()), _hoodie_is_deleted=pa.array([False, True]))
    with pytest.raises(InvalidRequest, match="null in 1 of 2"):
        prepared(rows)


def test_ordering_is_not_asked_for_where_it_does_not_count() -> None:
    rows = data(ts=pa.array([None, None], pa.int64()))
    assert prepared(rows, config(hoodie__record__merge__mode="COMMIT_TIME_ORDERING")).num_rows == 2


def test_partial_data_brings_what_it_has() -> None:
    table = prepared(data(v=None, s=None), partial=True)
    assert table.schema.names == [RECORD_KEY, PARTITION_PATH, "id", "ts", "p"]
    with pytest.raises(InvalidRequest, match="ordering"):
        prepared(data(ts=None), partial=True)


def test_deletes_need_only_keys() -> None:
    table = prepared(pa.table({"id": ["a"], "p": ["x"], "note": ["gone"]}), deletes=True)
    assert table.schema.names == [RECORD_KEY, PARTITION_PATH, "id", "p"]
    with_order = prepared(data(ts=pa.array([None, 3], pa.int64())), deletes=True)
    assert with_order.column("ts").to_pylist() == [None, 3]
    with pytest.raises(InvalidRequest, match="lacks the column 'p'"):
        prepared(pa.table({"id": ["a"]}), deletes=True)


def test_a_table_without_key_columns_numbers_its_rows() -> None:
    settings = config(hoodie__table__recordkey__fields="")
    rows = pa.concat_tables([data(), data()])
    made = [f"{BEGIN}_7_{number}" for number in range(4)]
    assert prepared(rows, settings, task=7).column(RECORD_KEY).to_pylist() == made
    read = data().append_column(RECORD_KEY, pa.array(["kept", None]))
    assert prepared(read, settings).column(RECORD_KEY).to_pylist() == ["kept", f"{BEGIN}_0_1"]


def test_the_plan_can_be_sent_to_tasks() -> None:
    plan: Preparation = pickle.loads(pickle.dumps(plan_preparation(config(), SCHEMA, data().schema)))
    assert [batch.num_rows for batch in plan.rows(data().to_batches(), BEGIN)] == [2]


def test_a_stream_stays_a_stream() -> None:
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield data().to_batches()[0]

    _, reader = prepare(
        pa.RecordBatchReader.from_batches(data().schema, batches()), config(), SCHEMA, requested_time=BEGIN
    )
    assert taken == 0
    reader.read_next_batch()
    assert taken <= 2


def test_large_batches_are_cut() -> None:
    rows = BATCH_ROWS + 5
    big = pa.table({"id": pa.array(range(rows)).cast(pa.string()), "p": ["x"] * rows}).combine_chunks().to_batches()[0]
    plan = plan_preparation(config(), SCHEMA, big.schema, deletes=True)
    assert [batch.num_rows for batch in plan.rows([big], BEGIN)] == [BATCH_ROWS, 5]


@pytest.mark.parametrize("container", ["table", "batch", "reader", "dataset", "scanner", "pandas", "polars", "duckdb"])
def test_everything_that_streams_is_taken(container: str) -> None:
    table = data().drop_columns(["s"])
    given: Any = table
    if container == "batch":
        given = table.to_batches()[0]
    elif container == "reader":
        given = table.to_reader()
    elif container in ("dataset", "scanner"):
        given = pads.dataset(table)
        given = given.scanner() if container == "scanner" else given
    elif container == "pandas":
        pytest.importorskip("pandas")
        given = table.to_pandas().set_index("id", drop=False)
    elif container == "polars":
        given = pytest.importorskip("polars").from_arrow(table)
    elif container == "duckdb":
        given = pytest.importorskip("duckdb").connect().from_arrow(table)
    narrow = SCHEMA.remove(SCHEMA.get_field_index("s"))
    _, reader = prepare(given, config(), narrow, requested_time=BEGIN)
    rows = reader.read_all()
    assert rows.select(["id", "ts", "p"]).to_pylist() == table.select(["id", "ts", "p"]).to_pylist()
    assert rows.column(RECORD_KEY).to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "hint"),
    [([{"id": "a"}], "from_pylist"), ({"id": ["a"]}, "from_pylist"), ("x.parquet", "Read the file"), (7, "Arrow")],
)
def test_what_is_not_data_gets_a_hint(given: object, hint: str) -> None:
    with pytest.raises(InvalidRequest, match=hint):
        as_reader(given)


def test_a_lazy_frame_is_not_collected_behind_the_users_back() -> None:
    lazy = pytest.importorskip("polars").LazyFrame({"id": ["a"]})
    if not hasattr(lazy, "__arrow_c_stream__"):
        with pytest.raises(InvalidRequest, match="collect"):
            as_reader(lazy)
