"""Plans are made under the table lock: while somebody else holds it, nothing is planned and nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakebed.errors import ConflictError
from lakebed.table import Table
from lakebed.txn.txn_context import TxnContext
from tests.unit.services.compaction_cases import client_of, filled

SOON = {"hoodie.write.lock.wait_time_ms": "30"}
ONE_VERSION = {**SOON, "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"}
PLANS: dict[str, Callable[[Table], Any]] = {
    "compaction": lambda target: target.services.plan_compaction("full", options=SOON),
    "log compaction": lambda target: target.services.plan_compaction(
        "log", options={**SOON, "hoodie.log.compaction.blocks.threshold": "2"}
    ),
    "clustering": lambda target: target.services.plan_clustering(SOON),
    "clean": lambda target: target.services.plan_clean(ONE_VERSION),
}


@pytest.mark.parametrize("service", PLANS)
def test_a_plan_waits_for_the_table_lock(service: str) -> None:
    more: dict[str, Any] = {"index": "simple", "num_buckets": None} if service == "clustering" else {}
    target = filled("v10-lsm", **more)
    if service == "clean":
        target.services.compact()
    client = client_of(target)
    before = client.timeline.instants
    with TxnContext.of(client.storage).lock.hold(), pytest.raises(ConflictError, match="lock"):
        PLANS[service](target)
    assert client_of(target).timeline.instants == before
    assert PLANS[service](target)
    assert len(client_of(target).timeline.pending.instants) == 1
