"""How `hoodie.properties` states the rule by which rows are merged: in version 8, and from version 9 on.

                     version 8                            version 9
    built in         mode + strategy id + class     ◄─►   mode; the class under another name, for the record
    retired class    CUSTOM + id of payloads + class ◄─►  mode + partial-update mode + merge properties; so is the class
    another class    CUSTOM + id + class            ◄─►   CUSTOM + id + class
    ordering         precombine field               ◄─►   ordering fields

These are the changes that Apache Hudi makes, property by property. Where rows would be merged by another rule than
before, or a program of the other version could not know the rule, the change is refused: no answer may depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.config.merge_settings import (
    COMMIT_TIME_STRATEGY,
    EVENT_TIME_STRATEGY,
    PAYLOAD_STRATEGY,
    PAYLOADS,
    MergeMode,
    MergeSettings,
)
from lakebed.config.table_config import TableConfig
from lakebed.errors import InvalidRequest

VERSION = "hoodie.table.version"
MODE = "hoodie.record.merge.mode"
STRATEGY = "hoodie.record.merge.strategy.id"
OLD_STRATEGY = "hoodie.compaction.record.merger.strategy"
PAYLOAD = "hoodie.compaction.payload.class"
LEGACY_PAYLOAD = "hoodie.table.legacy.payload.class"
PARTIAL_UPDATE = "hoodie.table.partial.update.mode"
MERGE_PROPERTY = "hoodie.record.merge.property."
DELETE_FIELD = MERGE_PROPERTY + "hoodie.payload.delete.field"
DELETE_MARKER = MERGE_PROPERTY + "hoodie.payload.delete.marker"
UNAVAILABLE = MERGE_PROPERTY + "hoodie.write.partial.update.unavailable.value"
ORDERING = "hoodie.table.ordering.fields"
PRECOMBINE = "hoodie.table.precombine.field"

_STRATEGIES = {MergeMode.EVENT_TIME: EVENT_TIME_STRATEGY, MergeMode.COMMIT_TIME: COMMIT_TIME_STRATEGY}
_MODEL = "org.apache.hudi.common.model."
_CLASSES = {
    MergeMode.EVENT_TIME: _MODEL + "DefaultHoodieRecordPayload",
    MergeMode.COMMIT_TIME: _MODEL + "OverwriteWithLatestAvroPayload",
}
_EVENT_TIME_CLASS = _MODEL + "EventTimeAvroPayload"
_BUILT_IN = (*_CLASSES.values(), _EVENT_TIME_CLASS)
_MYSQL = _MODEL + "debezium.MySqlDebeziumAvroPayload"
MYSQL_SEQUENCE = "_event_seq"


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """What to set and what to remove."""

    values: dict[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()

    def applied(self, properties: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in properties.items() if key not in self.removals} | self.values


def eight_to_nine(config: TableConfig) -> PropertyChange:
    """The change from version 8 to 9; refuses what has no such form."""
    properties = config.properties
    values, removals = {VERSION: "9"}, []
    stated = properties.get(MODE, "").strip() or config.merge_mode
    payload = properties.get(PAYLOAD, "").strip() or _CLASSES.get(MergeMode(stated.upper()), "")
    known = PAYLOADS.get(payload)
    if stated.upper() != MergeMode.CUSTOM:
        removals.append(STRATEGY)
    if known is not None:
        values[LEGACY_PAYLOAD] = payload
        removals.append(PAYLOAD)
        if payload not in _CLASSES.values():
            values |= {MODE: known.mode, OLD_STRATEGY: _STRATEGIES[known.mode]}
        if payload not in _BUILT_IN:
            values |= {STRATEGY: _STRATEGIES[known.mode], **_implied(known)}
    ordering = ",".join(known.ordering_fields if known and known.ordering_fields else ()) or _ordering(properties)
    if ordering:
        values[ORDERING] = ordering
        removals.append(PRECOMBINE)
    return _exact(config, PropertyChange(values, tuple(removals)))


def nine_to_eight(config: TableConfig) -> PropertyChange:
    """The change from version 9 to 8; refuses what has no such form."""
    properties = config.properties
    values, removals = {VERSION: "8"}, [PARTIAL_UPDATE]
    legacy = properties.get(LEGACY_PAYLOAD, "").strip()
    known = PAYLOADS.get(legacy)
    _refuse_unknown_to_eight(config, known)
    if known is not None:
        removals.append(LEGACY_PAYLOAD)
        built_in = legacy in _BUILT_IN
        strategy = _STRATEGIES[config.merge_mode] if built_in else PAYLOAD_STRATEGY
        values |= {PAYLOAD: legacy, STRATEGY: strategy, OLD_STRATEGY: strategy}
        if not built_in:
            values[MODE] = MergeMode.CUSTOM
            removals += _implied(known)
    elif config.merge_mode in _CLASSES:
        strategy = _STRATEGIES[config.merge_mode]
        values |= {STRATEGY: strategy, OLD_STRATEGY: strategy}
    ordering = MYSQL_SEQUENCE if is_mysql(config) else _ordering(properties)
    if ordering:
        values[PRECOMBINE] = ordering
        removals.append(ORDERING)
    return _exact(config, PropertyChange(values, tuple(removals)))


def is_mysql(config: TableConfig) -> bool:
    """Whether rows are events of MySQL's, whose payload class has a column of its own for their order in version 8."""
    return config.properties.get(LEGACY_PAYLOAD, "").strip() == _MYSQL


def _implied(known: MergeSettings) -> dict[str, str]:
    """The properties that state what a payload class did by itself."""
    values = {
        PARTIAL_UPDATE: known.partial_update_mode,
        DELETE_FIELD: known.delete_field,
        DELETE_MARKER: known.delete_marker,
        UNAVAILABLE: known.unavailable_value,
    }
    return {key: value for key, value in values.items() if value is not None}


def _ordering(properties: Mapping[str, str]) -> str:
    return properties.get(ORDERING, "").strip() or properties.get(PRECOMBINE, "").strip()


def _refuse_unknown_to_eight(config: TableConfig, known: MergeSettings | None) -> None:
    """Refuse settings of version 9 that version 8 has no property for, and the table's payload class does not imply."""
    implied = known or MergeSettings(config.merge_mode)
    if config.partial_update_mode is not implied.partial_update_mode:
        raise InvalidRequest(
            f"the partial-update mode {config.partial_update_mode} has no form in version 8",
            hint="Only the modes of payload classes that Hudi ships have one.",
        )
    if len(config.ordering_fields) > 1 and config.ordering_fields != implied.ordering_fields:
        raise InvalidRequest(f"version 8 knows one ordering field, not {', '.join(config.ordering_fields)}")


def _exact(config: TableConfig, change: PropertyChange) -> PropertyChange:
    """The change, if rows are merged after it as before."""
    after = TableConfig.from_properties(change.applied(config.properties))
    for name in (
        "merge_mode",
        "ordering_fields",
        "partial_update_mode",
        "delete_field",
        "delete_marker",
        "unavailable_value",
    ):
        old, new = getattr(config, name), getattr(after, name)
        if old != new:
            raise InvalidRequest(
                f"in version {int(after.version)} the table would merge rows otherwise: {name.replace('_', ' ')} "
                f"{new or 'none'} instead of {old or 'none'}",
                hint="Set hoodie.record.merge.mode and the payload class so that they agree.",
            )
    return change
