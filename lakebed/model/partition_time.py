"""Partition paths by time: the timestamp key generator, which formats a time column by a date pattern.

    hoodie.keygen.timebased.timestamp.type     what the column holds:
      UNIX_TIMESTAMP, EPOCHMILLISECONDS, EPOCHMICROSECONDS, SCALAR (unit in timestamp.scalar.time.unit), or text that is
      read by input.dateformat (a list, tried in order): DATE_STRING, MIXED
    hoodie.keygen.timebased.output.dateformat  how the folder is written
    hoodie.keygen.timebased.timezone           the zone of both, or input.timezone and output.timezone

Without a zone Hudi takes that of its process; here it is UTC, so that two writers agree. Without an output zone a text
that brings an offset along is formatted at that offset.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.model.java_time import UTC, DatePattern, zone_name, zone_of

_PREFIX = "hoodie.keygen.timebased."
_OLD_PREFIX = "hoodie.deltastreamer.keygen.timebased."
TIME_PREFIXES = (_PREFIX, _OLD_PREFIX)
"""The prefix of the properties that define how times become folders."""
_UNIT_OF_KIND = {"EPOCHMILLISECONDS": "MILLISECONDS", "EPOCHMICROSECONDS": "MICROSECONDS", "UNIX_TIMESTAMP": "SECONDS"}
_FACTORS = {"MILLISECONDS": 1, "SECONDS": 1000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000}
_DIVISORS = {"MICROSECONDS": 1000, "NANOSECONDS": 1_000_000}
_TEXT_KINDS = ("DATE_STRING", "MIXED")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLI = dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TimeFolders:
    """How times become folders."""

    output: DatePattern
    unit: str | None
    inputs: tuple[DatePattern, ...] = ()
    input_zone: str = UTC
    output_zone: str | None = None
    logical_timestamps: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, logical_timestamps: bool = False) -> TimeFolders | None:
        """None when the properties define no time format."""
        kind = _setting(properties, "timestamp.type").upper()
        pattern = _setting(properties, "output.dateformat")
        if not kind or not pattern:
            return None
        if kind not in (*_UNIT_OF_KIND, *_TEXT_KINDS, "SCALAR"):
            raise InvalidRequest(f"{_PREFIX}timestamp.type={kind} is not known")
        unit = _UNIT_OF_KIND.get(kind)
        if kind == "SCALAR":
            unit = (_setting(properties, "timestamp.scalar.time.unit") or "SECONDS").upper()
            if unit not in _FACTORS and unit not in _DIVISORS:
                raise InvalidRequest(f"{_PREFIX}timestamp.scalar.time.unit={unit} is not a unit of time")
        inputs: tuple[DatePattern, ...] = ()
        if kind in _TEXT_KINDS:
            inputs = _input_patterns(properties)
        both = _setting(properties, "timezone")
        read, written = (both or _setting(properties, f"{side}.timezone") for side in ("input", "output"))
        output = DatePattern.of(pattern)
        if output.has_offset:
            raise InvalidRequest(f"{_PREFIX}output.dateformat={pattern}: a folder cannot be named by a zone offset")
        return cls(
            output,
            unit,
            inputs,
            zone_name(read) if read else UTC,
            zone_name(written) if written else None,
            logical_timestamps,
        )

    def texts(self, column: Any, name: str) -> Any:
        """The formatted time of every row."""
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            column = column.cast(pa.string())
        if pa.types.is_string(column.type):
            return self._from_texts(column, name)
        millis = self._millis(column, name)
        try:
            local = pc.local_timestamp(millis.cast(pa.timestamp("ms", self.output_zone or UTC)))
            encoded = pc.floor_temporal(local, unit=self.output.unit).dictionary_encode()
            times = encoded.dictionary.to_pylist()
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise InvalidRequest(f"the column {name!r} holds a time that cannot be formatted: {error}") from None
        return pa.array([self.output.format(time) for time in times], pa.string()).take(encoded.indices)

    def _millis(self, column: Any, name: str) -> Any:
        """Epoch millis; a null counts as the number 1, as in Hudi."""
        types, kind = pa.types, column.type
        if types.is_timestamp(kind) and kind.tz is not None and self.logical_timestamps:
            filled = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
            return filled.fill_null(1)
        if self.unit is None or not (
            types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_decimal(kind)
            or types.is_date(kind)
            or types.is_timestamp(kind)
        ):
            raise InvalidRequest(f"the column {name!r} is {kind}, which {_PREFIX}timestamp.type does not fit")
        if types.is_date(kind):
            column = column.cast(pa.date32()).cast(pa.int32())
        try:
            numbers = column.cast(pa.int64(), safe=False).fill_null(1)
            if self.unit in _DIVISORS:
                return pc.divide(numbers, _DIVISORS[self.unit])
            return pc.multiply_checked(numbers, _FACTORS[self.unit])
        except pa.ArrowException as error:
            raise InvalidRequest(f"the column {name!r} holds a number that is no time: {error}") from None

    def _from_texts(self, column: Any, name: str) -> Any:
        if not self.inputs:
            raise InvalidRequest(
                f"the column {name!r} is text, and {_PREFIX}timestamp.type says that it is a number",
                hint=f"Set it to DATE_STRING, and {_PREFIX}input.dateformat.",
            )
        zone = zone_of(self.input_zone)
        written = zone_of(self.output_zone) if self.output_zone else None
        parsers = [pattern.parser() for pattern in self.inputs]
        nothing = self.inputs[0].format((_EPOCH + _MILLI).astimezone(zone))
        encoded = column.fill_null(nothing).dictionary_encode()
        out: list[str] = []
        bad: list[str] = []
        for text in encoded.dictionary.to_pylist():
            time = next((found for parser in parsers if (found := parser.parse(text, zone)) is not None), None)
            if time is None:
                bad.append(text)
            else:
                out.append(self.output.format(time.astimezone(written) if written else time))
        if bad:
            raise InvalidRequest(
                f"the column {name!r} holds {len(bad)} different texts that fit none of"
                f" {', '.join(pattern.text for pattern in self.inputs)}: {bad[0]!r}"
            )
        return pa.array(out, pa.string()).take(encoded.indices)


def _input_patterns(properties: Mapping[str, str]) -> tuple[DatePattern, ...]:
    formats = _setting(properties, "input.dateformat")
    if not formats:
        raise InvalidRequest(f"{_PREFIX}input.dateformat is needed to read times from text")
    delimiter = _setting(properties, "input.dateformat.list.delimiter.regex") or ","
    try:
        patterns = [part.strip() for part in re.split(delimiter, formats)]
    except re.error:
        raise InvalidRequest(f"{delimiter!r} is not a regular expression") from None
    return tuple(DatePattern.of(part) for part in patterns if part)


def _setting(properties: Mapping[str, str], name: str) -> str:
    return str(properties.get(_PREFIX + name) or properties.get(_OLD_PREFIX + name) or "").strip()
