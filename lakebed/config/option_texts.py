"""Options of a caller as `hoodie.*` texts: the only module where Python values are converted to option texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakebed.config.write_options import WriteOptions
from lakebed.errors import InvalidRequest

Options = Mapping[str, Any] | WriteOptions | None
"""What a call that writes takes as its options."""


def option_texts(options: Any) -> dict[str, str]:
    """A mapping of keys to values, or typed options, as texts; `InvalidRequest` for anything else.

    Booleans and numbers are converted to text. Of typed options only the fields that differ from their defaults are
    used: the others do not override the settings of the table.
    """
    if options is None:
        return {}
    if isinstance(options, WriteOptions):
        return options.to_properties()
    if not isinstance(options, Mapping):
        raise InvalidRequest(
            f"options are a mapping of keys to text, not {type(options).__name__}",
            hint='Write options={"hoodie.parquet.max.file.size": "128MB"}, or give a WriteOptions.',
        )
    return {_key(key): _text(key, value) for key, value in options.items()}


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidRequest(f"the key of an option is text, not {key!r}")
    return key


def _text(key: Any, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidRequest(
        f"the option {key} is {type(value).__name__}, which has no text", hint="Give text, a number or a boolean."
    )
