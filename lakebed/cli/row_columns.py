"""Checks the columns of an input file against the table: unknown and missing columns are refused unless allowed.

A misspelt column would be added, and the column that was meant would become null, so both are rejected: a column that
the table does not have, unless new columns are allowed, and one that the file lacks, unless missing ones are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.errors import InvalidRequest
from lakebed.model.schema import META_FIELD_NAMES
from lakebed.model.schema_change import did_you_mean


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The table's own columns and the user's options for others. `nulls` are unquoted texts in CSV that mean null."""

    schema: pa.Schema
    add_columns: bool = False
    missing_as_null: bool = False
    nulls: tuple[str, ...] = ()

    def new_names(self, found: Sequence[str], file: object) -> list[str]:
        """The columns of a file that the table does not have; `InvalidRequest` where the file's columns do not fit."""
        doubled = next((name for name in found if found.count(name) > 1), None)
        if doubled is not None:
            raise InvalidRequest(f"{file} has two columns called {doubled!r}")
        own = self.schema.names
        new = [name for name in found if name not in own and name not in META_FIELD_NAMES]
        missing = [name for name in own if name not in found]
        if new and not self.add_columns:
            hint = did_you_mean(new[0], missing or own) or ""
            raise InvalidRequest(
                f"{file} has the column {new[0]!r}, which the table does not have",
                hint=f"{hint} --add-columns adds it.".strip(),
            )
        if missing and not self.missing_as_null:
            raise InvalidRequest(
                f"{file} lacks the column {missing[0]!r}", hint="Add it, or give --missing-as-null to write null there."
            )
        return new

    def stream_schema(self, new: Sequence[pa.Field]) -> pa.Schema:
        """The schema of a file's rows: the table's columns in its order, then the new ones."""
        return pa.schema([*(item.with_nullable(True) for item in self.schema), *new])
