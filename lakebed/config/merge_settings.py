"""How a table merges two versions of a row, from the properties that different versions of Hudi use for it.

    version 8   `hoodie.record.merge.mode` with a payload class beside it; every class but three is CUSTOM by property
    version 9   the mode alone; the payload classes that Hudi retired became a mode, a partial-update mode and
                prefixed `hoodie.record.merge.property.*` settings, with the class kept for the record

The retired classes mean the same in both, so a version 8 table that names one gets the version 9 reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class MergeMode(StrEnum):
    """Which of two versions of a row wins."""

    COMMIT_TIME = "COMMIT_TIME_ORDERING"
    EVENT_TIME = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class PartialUpdateMode(StrEnum):
    """Which columns of the winning version are taken from the other one."""

    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The merge rule of a table as its properties state it."""

    mode: MergeMode
    ordering_fields: tuple[str, ...] = ()
    partial_update_mode: PartialUpdateMode | None = None
    delete_field: str | None = None
    delete_marker: str | None = None
    unavailable_value: str | None = None


EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"
DEBEZIUM_UNAVAILABLE = "__debezium_unavailable_value"

_MODE_OF_STRATEGY = {EVENT_TIME_STRATEGY: MergeMode.EVENT_TIME, COMMIT_TIME_STRATEGY: MergeMode.COMMIT_TIME}

_MODEL = "org.apache.hudi.common.model."
_DEFAULTS = PartialUpdateMode.IGNORE_DEFAULTS
_UNAVAILABLE = PartialUpdateMode.FILL_UNAVAILABLE
_LSN, _BINLOG = ("_event_lsn",), ("_event_bin_file", "_event_pos")
_CHANGE = "_change_operation_type"

PAYLOADS: Mapping[str, MergeSettings] = {
    _MODEL + "DefaultHoodieRecordPayload": MergeSettings(MergeMode.EVENT_TIME),
    _MODEL + "EventTimeAvroPayload": MergeSettings(MergeMode.EVENT_TIME),
    _MODEL + "OverwriteWithLatestAvroPayload": MergeSettings(MergeMode.COMMIT_TIME),
    _MODEL + "OverwriteNonDefaultsWithLatestAvroPayload": MergeSettings(MergeMode.COMMIT_TIME, (), _DEFAULTS),
    _MODEL + "PartialUpdateAvroPayload": MergeSettings(MergeMode.EVENT_TIME, (), _DEFAULTS),
    _MODEL + "AWSDmsAvroPayload": MergeSettings(MergeMode.COMMIT_TIME, (), None, "Op", "D"),
    _MODEL + "debezium.PostgresDebeziumAvroPayload": MergeSettings(
        MergeMode.EVENT_TIME, _LSN, _UNAVAILABLE, _CHANGE, "d", DEBEZIUM_UNAVAILABLE
    ),
    _MODEL + "debezium.MySqlDebeziumAvroPayload": MergeSettings(MergeMode.EVENT_TIME, _BINLOG, None, _CHANGE, "d"),
}
"""What the payload classes that Hudi ships mean; any other class is code that cannot run here."""


def merge_settings(
    stated: MergeMode | None,
    payload_class: str | None,
    strategy_id: str | None,
    explicit: MergeSettings,
) -> MergeSettings:
    """The merge rule from the stated mode, payload class and strategy, completed by `explicit` single properties.

    A known payload class decides where the mode is absent or CUSTOM; then its own ordering fields count, because such a
    class never read the table's. A single property takes precedence over what the class implies.
    """
    known = PAYLOADS.get(payload_class or "")
    by_class = known is not None and stated in (None, MergeMode.CUSTOM)
    if stated is not None and not by_class:
        mode = stated
    elif known is not None:
        mode = known.mode
    elif strategy_id in _MODE_OF_STRATEGY:
        mode = _MODE_OF_STRATEGY[strategy_id]
    elif payload_class or strategy_id:
        mode = MergeMode.CUSTOM
    else:
        mode = MergeMode.EVENT_TIME if explicit.ordering_fields else MergeMode.COMMIT_TIME
    implied = known or MergeSettings(mode)
    ordering = implied.ordering_fields if by_class else ()
    partial = explicit.partial_update_mode or implied.partial_update_mode
    unavailable = explicit.unavailable_value or implied.unavailable_value
    if partial is PartialUpdateMode.FILL_UNAVAILABLE and unavailable is None:
        unavailable = DEBEZIUM_UNAVAILABLE
    return MergeSettings(
        mode=mode,
        ordering_fields=ordering or explicit.ordering_fields or implied.ordering_fields,
        partial_update_mode=partial,
        delete_field=explicit.delete_field or implied.delete_field,
        delete_marker=explicit.delete_marker or implied.delete_marker,
        unavailable_value=unavailable,
    )
