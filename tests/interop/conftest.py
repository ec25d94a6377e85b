"""The peers, started once per session. Without their environment these tests fail: they are asked for by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .client import HudiPeer
from .rs_client import HudiRs


@pytest.fixture(scope="session")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiPeer]:
    """Real Hudi 1.2.0 on Spark."""
    with HudiPeer(tmp_path_factory.mktemp("hudi-peer")) as peer:
        yield peer


@pytest.fixture
def rs(tmp_path: Path) -> Iterator[HudiRs]:
    """hudi-rs, in a process of its own."""
    with HudiRs(tmp_path) as reader:
        yield reader
