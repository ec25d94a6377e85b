"""Typed access to the fields of a decoded Avro record.

The schema of a timeline file comes from the file itself and may be anything, so a field's presence and type are
checked where it is read. A null reads as nothing, zero or empty: writers of different versions leave fields out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakebed.errors import CorruptTable


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one record of `file`."""

    record: Mapping[str, Any]
    file: str

    def _get(self, key: str, kind: type | tuple[type, ...]) -> Any:
        value = self.record.get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise CorruptTable(f"{key} has the wrong type {type(value).__name__}", file=self.file)
        return value

    def text(self, key: str) -> str | None:
        value: str | None = self._get(key, str)
        return value

    def need(self, key: str) -> str:
        value = self.text(key)
        if value is None:
            raise CorruptTable(f"{key} is missing", file=self.file)
        return value

    def flag(self, key: str) -> bool:
        return bool(self._get(key, bool))

    def number(self, key: str) -> int:
        return self._get(key, int) or 0

    def maybe(self, key: str) -> int | None:
        value: int | None = self._get(key, int)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        return _all_texts(self._get(key, list) or (), key, self.file)

    def one(self, key: str) -> Fields | None:
        value = self._get(key, dict)
        return None if value is None else Fields(value, self.file)

    def need_one(self, key: str) -> Fields:
        value = self.one(key)
        if value is None:
            raise CorruptTable(f"{key} is missing", file=self.file)
        return value

    def many(self, key: str) -> tuple[Fields, ...]:
        return self._records(self._get(key, list) or (), key)

    def text_map(self, key: str) -> dict[str, str]:
        values = self._get(key, dict) or {}
        _all_texts(values.values(), key, self.file)
        return dict(values)

    def texts_map(self, key: str) -> dict[str, tuple[str, ...]]:
        return {name: _all_texts(value, key, self.file) for name, value in self._lists(key)}

    def number_map(self, key: str) -> dict[str, Any]:
        values = self._get(key, dict) or {}
        if not all(isinstance(value, (int, float)) for value in values.values()):
            raise CorruptTable(f"{key} holds something else than numbers", file=self.file)
        return dict(values)

    def record_map(self, key: str) -> dict[str, Fields]:
        values = self._get(key, dict) or {}
        return dict(zip(values, self._records(values.values(), key), strict=True))

    def records_map(self, key: str) -> dict[str, tuple[Fields, ...]]:
        return {name: self._records(value, key) for name, value in self._lists(key)}

    def _lists(self, key: str) -> list[tuple[str, list[Any]]]:
        values = self._get(key, dict) or {}
        if not all(isinstance(value, list) for value in values.values()):
            raise CorruptTable(f"{key} is not a map of lists", file=self.file)
        return list(values.items())

    def _records(self, values: Iterable[Any], key: str) -> tuple[Fields, ...]:
        if not all(isinstance(value, dict) for value in values if value is not None):
            raise CorruptTable(f"{key} holds something else than records", file=self.file)
        return tuple(Fields(value, self.file) for value in values if value is not None)


def _all_texts(values: Iterable[Any], key: str, file: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise CorruptTable(f"{key} holds something else than text", file=file)
    return tuple(values)
