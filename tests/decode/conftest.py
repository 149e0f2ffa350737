"""A GPU's stand-in, for tests of decoders."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import standin
from standin import StandIn


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with standin.installed(monkeypatch) as used:
        yield used
        gc.collect()
        assert used.order.found() == []
