"""Tables on a device: how many there are, and when their memory goes back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from framefeed.convert.cuda import device_tables
from framefeed.convert.cuda.device_tables import DeviceTableCache


class _Stream:
    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Number in the tensor, and stream, of all that is to wait for streams before it goes back."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: found.append((int(tensor[0]), stream.cuda_stream))
    )
    monkeypatch.setattr(device_tables, "MAX_TABLES", 4)
    return found


def _get(things: DeviceTableCache, number: int, stream: Any) -> torch.Tensor:
    found: torch.Tensor = things.get(number, lambda: torch.tensor([number]), stream)
    assert int(found[0]) == number
    return found


def test_there_are_never_more(recorded: list[tuple[int, int]]) -> None:
    things, streams = DeviceTableCache(), [_Stream(1), _Stream(2)]
    for number in range(100):
        _get(things, number, streams[number % 2])
        assert len(things) <= 4
    assert _get(things, 99, streams[0]) is _get(things, 99, streams[1])


def test_streams_that_have_used_one_are_waited_for(recorded: list[tuple[int, int]]) -> None:
    things = DeviceTableCache()
    for stream in (1, 2, 1):
        _get(things, 0, _Stream(stream))
    for number in range(1, 4):
        _get(things, number, _Stream(3))
    assert recorded == []
    _get(things, 4, _Stream(3))
    assert sorted(recorded) == [(0, 1), (0, 2)]


def test_one_that_is_used_while_it_goes(recorded: list[tuple[int, int]]) -> None:
    """One thread finds an entry, and another drops it before it is used."""
    things = DeviceTableCache()
    _get(things, 0, _Stream(1))
    held = things._entries[0]
    for number in range(1, 5):
        _get(things, number, _Stream(2))
    recorded.clear()
    held.use(_Stream(7))  # type: ignore[arg-type]
    assert (0, 7) in recorded
