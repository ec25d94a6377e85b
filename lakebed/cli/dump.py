"""`lakebed log dump` and `lakebed hfile dump`: look into one file, block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from lakebed.cli.output import console, print_json, print_pairs, print_table
from lakebed.datafile.log_file import open_log_file, read_block
from lakebed.errors import InvalidRequest
from lakebed.format.hfile import HFileReader
from lakebed.storage.local import LocalStorage

log_app = typer.Typer(help="Look into a log file.", no_args_is_help=True)
hfile_app = typer.Typer(help="Look into an HFile.", no_args_is_help=True)
FileArgument = Annotated[Path, typer.Argument(help="A local file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _storage_of(file: Path) -> tuple[LocalStorage, str]:
    if not file.is_file():
        raise InvalidRequest("there is no such file", file=str(file), hint="`lakebed slices PATH` lists the files of a table.")
    absolute = file.resolve()
    return LocalStorage(str(absolute.parent)), absolute.name
