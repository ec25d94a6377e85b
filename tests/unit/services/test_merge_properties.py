"""From version 8 to 9 and back, `hoodie.properties` changes as it does in the hands of real Hudi."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from lakebed.config.table_config import TableConfig
from lakebed.errors import InvalidRequest
from lakebed.services.merge_properties import eight_to_nine, nine_to_eight

HISTORIES: dict[str, list[dict[str, str]]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "version_properties.json").read_text()
)
"""Properties of tables that Hudi 1.2.0 made in version 8 or 9 and sent up and down, after each step."""
STEPS = {"8": eight_to_nine, "9": nine_to_eight}
PARTIAL_UPDATES = "org.apache.hudi.common.model.PartialUpdateAvroPayload"


def table(version: int, **more: str) -> TableConfig:
    given = {f"hoodie.{key.replace('__', '.')}": value for key, value in more.items()}
    return TableConfig.from_properties({"hoodie.table.name": "t", "hoodie.table.version": str(version), **given})


def test_the_tables_are_of_every_kind() -> None:
    assert len(HISTORIES) > 20
    named = {after.get("hoodie.compaction.payload.class", "") for states in HISTORIES.values() for after in states}
    assert len(named) == 10, "eight classes that Hudi ships, one that it does not retire, and none"


@pytest.mark.parametrize("name", HISTORIES)
def test_each_step_is_that_of_hudi(name: str) -> None:
    for before, after in pairwise(HISTORIES[name]):
        change = STEPS[before["hoodie.table.version"]](TableConfig.from_properties(before))
        assert change.applied(before) == after


def test_what_version_8_cannot_say() -> None:
    with pytest.raises(InvalidRequest, match="one ordering field, not a, b"):
        nine_to_eight(table(9, record__merge__mode="EVENT_TIME_ORDERING", table__ordering__fields="a,b"))
    partial = {"record__merge__mode": "EVENT_TIME_ORDERING", "table__ordering__fields": "a"}
    with pytest.raises(InvalidRequest, match="IGNORE_DEFAULTS has no form"):
        nine_to_eight(table(9, **partial, table__partial__update__mode="IGNORE_DEFAULTS"))
    with pytest.raises(InvalidRequest, match="FILL_UNAVAILABLE has no form"):
        nine_to_eight(
            table(
                9,
                **partial,
                table__legacy__payload__class=PARTIAL_UPDATES,
                table__partial__update__mode="FILL_UNAVAILABLE",
            )
        )


def test_a_mode_and_a_class_that_disagree() -> None:
    """In version 8 the mode counts; after the change that Hudi makes the class would."""
    odd = {"record__merge__mode": "COMMIT_TIME_ORDERING", "compaction__payload__class": PARTIAL_UPDATES}
    with pytest.raises(InvalidRequest, match="merge mode EVENT_TIME_ORDERING instead of COMMIT_TIME_ORDERING"):
        eight_to_nine(table(8, **odd))
    again = {"record__merge__mode": "COMMIT_TIME_ORDERING", "table__partial__update__mode": "IGNORE_DEFAULTS"}
    with pytest.raises(InvalidRequest, match="merge mode EVENT_TIME_ORDERING instead of COMMIT_TIME_ORDERING"):
        nine_to_eight(table(9, **again, table__legacy__payload__class=PARTIAL_UPDATES))


def test_a_table_that_states_no_mode() -> None:
    change = eight_to_nine(table(8, table__precombine__field="ts"))
    assert change.values["hoodie.table.ordering.fields"] == "ts"
    assert change.values["hoodie.table.legacy.payload.class"].endswith("DefaultHoodieRecordPayload")
