"""The front door: open a table, read it.

`Table` stays small on purpose. What a table *contains* is behind `scan` and `incremental`; what it is *made of* is
behind `inspect`. Nothing is cached across calls but the table's properties and timeline, and `refresh` renews those.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakebed.config.options import ReadOptions, TableConfig
from lakebed.inspect import Inspect
from lakebed.model.predicate import Predicate
from lakebed.read.plan import Query, query_named
from lakebed.read.scan import Scan, Time
from lakebed.read.shape import table_shape
from lakebed.runner import LocalRunner
from lakebed.storage.open import open_storage
from lakebed.timeline.meta_client import MetaClient


class Table:
    """A Hudi table at a location. Get one with `lakebed.open`."""

    __slots__ = ("_client", "_options", "_runner")

    def __init__(self, client: MetaClient, options: ReadOptions | None = None) -> None:
        self._client = client
        self._options = options or ReadOptions()
        self._runner = LocalRunner()

    # ------------------------------------------------------------------ what it is
    @property
    def url(self) -> str:
        """Where the table lies."""
        return self._client.storage.url

    @property
    def config(self) -> TableConfig:
        """The table's own settings, from `hoodie.properties`."""
        return self._client.config

    @property
    def name(self) -> str:
        """The table's name."""
        return self.config.name

    @property
    def schema(self) -> pa.Schema:
        """The current schema, meta fields first."""
        return table_shape(self._client).schema

    @property
    def inspect(self) -> Inspect:
        """Timeline, slices, commits and settings as Arrow tables."""
        return Inspect(self._client, self._options)

    def refresh(self) -> Table:
        """See what was committed since the table was opened."""
        self._client = self._client.reload()
        return self

    # ------------------------------------------------------------------ reading
    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | Predicate | None = None,  # noqa: A002 - the word every data frame uses
        as_of: Time | None = None,
        query: str = Query.SNAPSHOT,
        limit: int | None = None,
        memory: int | str | None = None,
        options: Mapping[str, str] | ReadOptions | None = None,
    ) -> Scan:
        """The rows of the table, now or `as_of` a time.

        `query="read_optimized"` reads base files only: faster, and as old as the last compaction.
        `memory` is a ceiling in bytes (or "512MB") for merging, honoured by smaller buffers, passes and spilling.

            t.scan(columns=["id", "qty"], filter="qty > 3 and region = 'eu'").to_pandas()
        """
        return Scan(
            client=self._client,
            query=query_named(query),
            columns=None if columns is None else tuple(columns),
            where=filter,
            as_of_time=as_of,
            limit_rows=limit,
            options=self._options.override(options, memory=memory),
            runner=self._runner,
        )

    def incremental(
        self,
        start: Time,
        end: Time | None = None,
        columns: Sequence[str] | None = None,
        filter: str | Predicate | None = None,  # noqa: A002
        memory: int | str | None = None,
        options: Mapping[str, str] | ReadOptions | None = None,
    ) -> Scan:
        """Rows whose current version was committed after `start` and up to `end`, by completion time.

        The answer is the merged state at the end of the range, so a row that came late and lost is not in it.

            t.incremental(start="20261101000000000").to_arrow()
        """
        return Scan(
            client=self._client,
            query=Query.INCREMENTAL,
            columns=None if columns is None else tuple(columns),
            where=filter,
            start=start,
            end=end,
            options=self._options.override(options, memory=memory),
            runner=self._runner,
        )

    def __repr__(self) -> str:
        config = self.config
        return f"Table({self.url!r}, {config.table_type}, version {int(config.version)}, layout {config.layout})"


def open(  # noqa: A001 - `lakebed.open(path)` is the name people look for
    path: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | ReadOptions | None = None,
) -> Table:
    """Open the table at a local path or an object-store URL.

        t = lakebed.open("s3://lake/orders", storage_options={"region": "eu-west-1"})

    Raises `TableNotFound` when there is no table, `UnsupportedFormat` for versions that are not read.
    """
    client = MetaClient.open(open_storage(path, storage_options))
    return Table(client, ReadOptions().override(options))
