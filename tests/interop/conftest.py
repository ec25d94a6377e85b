"""The peers, started once per session. Without their environment these tests fail: they are asked for by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .client import HudiPeer


@pytest.fixture(scope="session")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiPeer]:
    """Real Hudi 1.2.0 on Spark."""
    with HudiPeer(tmp_path_factory.mktemp("hudi-peer")) as peer:
        yield peer
