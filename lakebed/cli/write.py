"""`lakebed upsert` and `lakebed delete`: write rows from files into a table as one commit, without Spark.

Files stream: a batch at a time goes from the reader into the write, so a file may be larger than memory. CSV and JSON
have too few types of their own; their columns are read as the table's types. A file must have every column of the table
and no other, unless options allow it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakebed.cli.output import print_json, say
from lakebed.cli.row_columns import RowColumns
from lakebed.cli.row_files import rows_of_files
from lakebed.cli.show import JsonOption, PathArgument
from lakebed.cli.upkeep import DropMetadataOption, SetOption, options_of
from lakebed.model.schema import without_meta_fields
from lakebed.open_table import open as open_table
from lakebed.write.job import CommitResult

MemoryOption = Annotated[str | None, typer.Option(help="A ceiling such as 512MB.")]


def upsert(
    path: PathArgument,
    files: Annotated[list[Path], typer.Argument(help=".parquet, .arrow, .csv or .json (a row per line) files.")],
    add_columns: Annotated[
        bool,
        typer.Option(
            "--add-columns",
            help="Add columns that the table does not have yet. In CSV they are numbers, booleans, dates or times if "
            "every cell prints back unchanged, else text: 07, +5 and 1.50 stay as they are.",
        ),
    ] = False,
    missing_as_null: Annotated[
        bool, typer.Option("--missing-as-null", help="Write null where a file or a row lacks a column.")
    ] = False,
    null: Annotated[
        list[str] | None, typer.Option("--null", help="An unquoted word that is null in CSV, besides the empty cell.")
    ] = None,
    memory: MemoryOption = None,
    settings: SetOption = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Insert the rows of files, or update those whose key is there already; all files in one commit."""
    table = open_table(path)
    own = without_meta_fields(table.schema)
    data = rows_of_files(files, RowColumns(own, add_columns, missing_as_null, tuple(null or ())))
    _print(table.upsert(data, options=options_of(settings), memory=memory, drop_metadata=drop_metadata), as_json)


def delete(
    path: PathArgument,
    where: Annotated[str | None, typer.Option(help="The rows to delete, as a condition.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A record key to delete; may be repeated.")] = None,
    memory: MemoryOption = None,
    settings: SetOption = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the rows that a condition matches, or those with these keys."""
    done = open_table(path).delete(where, key, options_of(settings), memory, drop_metadata)
    _print(done, as_json)


def _print(done: CommitResult, as_json: bool) -> None:
    facts = {
        "instant": done.instant,
        "completion_time": done.completion_time,
        "inserted": done.inserted,
        "updated": done.updated,
        "deleted": done.deleted,
        "files": list(done.files),
    }
    if as_json:
        print_json(facts)
        return
    say(
        f"{done.instant}: {done.inserted:,} inserted, {done.updated:,} updated, {done.deleted:,} deleted, "
        f"in {len(done.files):,} files"
    )
