"""Arguments of public functions, checked and converted to one form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakebed.errors import InvalidRequest

Memory = int | str | None
"""A ceiling in bytes, or text such as "512MB"; None for the value of the options."""


def column_names(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """The columns of a read; None for all of them. A single name that is not in a list is refused as a mistake."""
    if columns is None:
        return None
    if isinstance(columns, str | bytes) or not isinstance(columns, Iterable):
        raise InvalidRequest(f"columns is a list of names, not {columns!r}", hint='Write columns=["id", "qty"].')
    return tuple(columns)


def one_or_several(what: str, columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns of an argument, called `what`, that takes one or several."""
    if columns is None or isinstance(columns, str):
        return () if columns is None else (columns,)
    names = tuple(columns) if isinstance(columns, Iterable) else (columns,)
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequest(
            f"{what} is a column or a list of them, not {columns!r}",
            hint=f'Write {what}="id", or {what}=["id", "day"].',
        )
    return names


def is_spark_frame(data: object) -> bool:
    """Whether data is a Spark DataFrame, classic or Connect, without importing pyspark to find out."""
    return any(
        base.__module__.startswith("pyspark.sql") and base.__name__ == "DataFrame" for base in type(data).__mro__
    )
