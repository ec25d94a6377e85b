"""Text functions over columns: LIKE, regular expressions, substrings, case, length. Positions count characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expression.java_regex import to_re2
from lakebed.expression.types import INT, TEXT


def like(text: Any, pattern: str, regex: bool) -> Any:
    """Whether the text matches."""
    return pc.match_substring_regex(text, to_re2(pattern)) if regex else pc.match_like(text, pattern)


def check_like(pattern: str, escape: str) -> str:
    """The pattern with backslash for escape; ValueError where the escape stands before anything but % _ or itself."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == escape:
            position += 1
            following = pattern[position : position + 1]
            if following not in ("%", "_", escape) or not following:
                raise ValueError(f"the escape {escape!r} in {pattern!r} must stand before %, _ or itself")
            char = "\\" + following if following in "%_\\" else following
        elif char == "\\":
            char = "\\\\"
        out.append(char)
        position += 1
    return "".join(out)


def substring(text: Any, start: int, length: int = 2**31 - 1) -> Any:
    """Positions count from 1, 0 is 1 as well, negative ones count from the end and may lie before the beginning."""
    if length <= 0:
        return pc.utf8_slice_codeunits(text, 0, 0)
    if start >= 0:
        offset = max(start - 1, 0)
        return pc.utf8_slice_codeunits(text, offset, min(offset + length, 2**31 - 1))
    if start + length >= 0:
        return pc.utf8_slice_codeunits(text, max(start, -(2**31)))
    # The end is counted from the end of the text as well: a start before the beginning uses up length.
    stop = start + length
    return pc.utf8_slice_codeunits(text, max(start, -(2**31)), stop)


def lower(text: Any) -> Any:
    """In small letters, by the rules of Unicode for whole texts."""
    return _cased(text, pc.utf8_lower, str.lower)


def upper(text: Any) -> Any:
    """In capitals, by the rules of Unicode for whole texts."""
    return _cased(text, pc.utf8_upper, str.upper)


def _cased(text: Any, plain: Callable[[Any], Any], whole: Callable[[str], str]) -> Any:
    """Arrow maps letter by letter, which is enough for ASCII only."""
    if pc.all(pc.string_is_ascii(text)).as_py() is not False:
        return plain(text)
    encoded = text.dictionary_encode()
    return pa.array([whole(item) for item in encoded.dictionary.to_pylist()], TEXT).take(encoded.indices)


def concat(parts: Sequence[Any]) -> Any:
    """One text after the other; null when a part is."""
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, pa.scalar("" if parts[0].type == TEXT else b"", parts[0].type))


def length(text: Any) -> Any:
    """Characters of a text, bytes of a binary value."""
    return (pc.utf8_length(text) if text.type == TEXT else pc.binary_length(text)).cast(INT)


def year_of(day: Any) -> Any:
    """The year of a date as INT. Arrow's own has 16 bits, and days reach far beyond."""
    if isinstance(day, pa.Scalar):
        return year_of(pa.repeat(day, 1))[0]
    days = np.asarray(day.cast(INT).fill_null(0)).astype("datetime64[D]")
    years = days.astype("datetime64[Y]").astype(np.int64) + 1970
    return pa.array(years.astype(np.int32), INT, mask=np.asarray(day.is_null()))


def part_of(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Year, hour and the like as INT."""
    return lambda value: function(value).cast(INT)
