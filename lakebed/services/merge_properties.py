"""How `hoodie.properties` says what a table's rows are merged by, in version 8 and from version 9 on.

                     version 8                                  version 9
    built in         mode + strategy id + payload class    ◄─►  mode; the class as legacy.payload.class
    retired class    CUSTOM + id of payloads + class       ◄─►  mode + partial-update mode + merge properties; the same
    another class    CUSTOM + id + class                   ◄─►  CUSTOM + id + class
    ordering         precombine.field                      ◄─►  ordering.fields

These are the changes that Apache Hudi makes, property by property. A change after which rows would be merged by
another rule than before is refused, so no answer depends on the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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

MODE = "hoodie.record.merge.mode"
STRATEGY = "hoodie.record.merge.strategy.id"
PAYLOAD = "hoodie.compaction.payload.class"
LEGACY_PAYLOAD = "hoodie.table.legacy.payload.class"
PARTIAL_UPDATE = "hoodie.table.partial.update.mode"
MERGE_PROPERTY = "hoodie.record.merge.property."
DELETE_FIELD = MERGE_PROPERTY + "hoodie.payload.delete.field"
DELETE_MARKER = MERGE_PROPERTY + "hoodie.payload.delete.marker"
UNAVAILABLE = MERGE_PROPERTY + "hoodie.write.partial.update.unavailable.value"
ORDERING = "hoodie.table.ordering.fields"
PRECOMBINE = "hoodie.table.precombine.field"
