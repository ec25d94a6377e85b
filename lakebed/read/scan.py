"""A scan: what to read, as a frozen value, and the methods that return its rows.

Every method that narrows a scan returns a new one; nothing is read before `to_batches`, `to_arrow`, `count` or
`explain` is called. A scan belongs to the moment at which its table was opened or refreshed and keeps its answer, until
a clean removes the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from lakebed.config.memory_plan import MemoryPlan
from lakebed.config.read_options import ReadOptions
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import Predicate, parse_predicate
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import ReadSplit
from lakebed.read.cached_merge import count_live, live_rows
from lakebed.read.plan import Plan, Query, output_schema, plan_read
from lakebed.read.reader_context import reader_context_of, with_made_keys
from lakebed.read.stream import stream_batches
from lakebed.read.time_range import Time, TimeRange, resolve_as_of, resolve_range
from lakebed.runner import LocalRunner, Runner
from lakebed.timeline.meta_client import MetaClient


@dataclass(frozen=True, slots=True, repr=False)
class Scan:
    """Rows of a table at a time; see `Table.scan` and `Table.incremental` for how to get one."""

    client: MetaClient
    query: Query = Query.SNAPSHOT
    columns: tuple[str, ...] | None = None
    where: str | Predicate | None = None
    as_of_time: Time | None = None
    start: Time | None = None
    end: Time | None = None
    limit_rows: int | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    runner: Runner = field(default_factory=LocalRunner)
    keyed: bool = False
    """For writers: key and partition path can be selected also where the table does not store them."""

    def __post_init__(self) -> None:
        """Refuse at once what is wrong without reading the table."""
        if not isinstance(self.where, str | Predicate | None):
            raise InvalidRequest(
                f"a filter is text or a predicate, not {type(self.where).__name__}", hint='Write filter="qty > 3".'
            )
        limit = self.limit_rows
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise InvalidRequest(f"limit is a number of rows and not negative, it is {limit!r}")

    def __repr__(self) -> str:
        arguments = (
            ("columns", self.columns),
            ("filter", self.where and _text(self.where)),
            ("as_of", self.as_of_time),
            ("start", self.start),
            ("end", self.end),
            ("limit", self.limit_rows),
        )
        words = [f"{name}={value!r}" for name, value in arguments if value is not None]
        return f"Scan({', '.join([repr(self.client.url), str(self.query), *words])})"

    # ------------------------------------------------------------------ narrowing, each a new scan
    def select(self, *columns: str) -> Scan:
        """The same scan with only these columns, in this order."""
        return replace(self, columns=tuple(columns))

    def filter(self, where: str | Predicate) -> Scan:
        """The same scan with one more condition."""
        if self.where is None:
            return replace(self, where=where)
        both = f"({_text(self.where)}) AND ({_text(where)})"
        return replace(self, where=both)

    def as_of(self, time: Time) -> Scan:
        """The same scan of the table as it was at a time or instant."""
        return replace(self, as_of_time=time)

    def limit(self, rows: int) -> Scan:
        """The same scan, ended after so many rows."""
        return replace(self, limit_rows=rows)

    # ------------------------------------------------------------------ getting the rows
    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return output_schema(reader_context_of(self.client, self._time_range().at).schema, self.columns)

    def plan(self) -> Plan:
        """Which files will be read, and why the others will not."""
        time = self._time_range()
        reader_context = reader_context_of(self.client, time.at)
        predicate = parse_predicate(self.where, reader_context.schema) if isinstance(self.where, str) else self.where
        if self.keyed:
            reader_context = with_made_keys(reader_context, self.client.config)
        if predicate is not None:
            output_schema(reader_context.schema, predicate.columns)  # a predicate that was made for another table
        return plan_read(self.client, reader_context, self.query, time, self.columns, predicate, self.options)

    def _time_range(self) -> TimeRange:
        if self.query is Query.INCREMENTAL:
            return resolve_range(self.client, self.start, self.end)
        return resolve_as_of(self.client, self.as_of_time)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as a stream of Arrow batches, with memory bounded by the options."""
        return self._batches(self.plan())

    def _batches(self, plan: Plan) -> Iterator[pa.RecordBatch]:
        left = self.limit_rows
        if left == 0:
            return
        threads = self._threads(plan)
        reader = plan.reader.with_share(threads)
        read = reader.read if left is not None else partial(live_rows, reader, keep=self._keep)
        for batch in stream_batches(read, plan.splits, threads):
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            yield batch
            if left == 0:
                return

    @property
    def _keep(self) -> int:
        """What may be kept of slices, besides what reading them takes: together no more than the memory."""
        return MemoryPlan(self.options.memory).kept_vectors

    def _threads(self, plan: Plan) -> int:
        return min(self.options.threads or os.cpu_count() or 1, max(1, len(plan.splits)))

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow stream reader, for DuckDB, polars and others that pull."""
        plan = self.plan()
        return pa.RecordBatchReader.from_batches(plan.schema, self._batches(plan))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        plan = self.plan()
        return pa.Table.from_batches(list(self._batches(plan)), schema=plan.schema)

    def to_pandas(self, **kwargs: Any) -> Any:
        """All rows as a pandas frame."""
        return self.to_arrow().to_pandas(**kwargs)

    def to_polars(self) -> Any:
        """All rows as a polars frame."""
        try:
            import polars
        except ImportError as error:
            raise InvalidRequest("polars is not installed", hint="Install it with: pip install polars.") from error
        return polars.from_arrow(self.to_arrow())

    def count(self) -> int:
        """How many rows there are; slices without logs and filters are counted from their footers."""
        if self.limit_rows is not None:
            return sum(batch.num_rows for batch in self.to_batches())
        plan = replace(self, columns=()).plan()
        threads = self._threads(plan)
        reader = plan.reader.with_share(threads)
        runner = self.runner.limited_to(threads)
        return sum(runner.map(_Count.run, [_Count(reader, split, self._keep) for split in plan.splits], label="count"))

    def to_df(self, spark: Any) -> Any:
        """The rows as a Spark DataFrame; what Spark's own Parquet reader can read never passes through Python."""
        from lakebed.spark.read import to_df

        frame = to_df(spark, self.plan())
        return frame if self.limit_rows is None else frame.limit(self.limit_rows)

    def explain(self, spark: Any = None) -> str:
        """The plan in words: what is read, what was pruned and why, and how slices are merged.

        With a session, or True, also by which route each slice comes to Spark.
        """
        plan = self.plan()
        if not spark:
            return plan.explain()
        from lakebed.spark.read import explain_routes

        return "\n".join([plan.explain(), *explain_routes(plan, None if spark is True else spark)])


def _text(where: str | Predicate) -> str:
    return where if isinstance(where, str) else where.to_sql()


@dataclass(frozen=True, slots=True)
class _Count:
    reader: FileGroupReader
    split: ReadSplit
    keep: int

    def run(self) -> int:
        return count_live(self.reader, self.split, self.keep)
