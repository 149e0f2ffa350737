"""Python's switch interval is changed only while somebody needs it, and never against the user's will."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from framefeed.batch.switching import Switching


@pytest.fixture(autouse=True)
def interval() -> Iterator[float]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    yield sys.getswitchinterval()
    sys.setswitchinterval(before)


def test_it_lasts_as_long_as_anybody_needs_it(interval: float) -> None:
    switching = Switching(0.001)
    switching.begin()
    switching.begin()
    switching.end()
    assert sys.getswitchinterval() == pytest.approx(0.001)
    switching.end()
    assert sys.getswitchinterval() == interval
    switching.begin()
    assert sys.getswitchinterval() == pytest.approx(0.001)
    switching.end()
    assert sys.getswitchinterval() == interval


def test_a_shorter_one_stays() -> None:
    switching = Switching(0.01)
    switching.begin()
    assert sys.getswitchinterval() == pytest.approx(0.004)
    switching.end()
    assert sys.getswitchinterval() == pytest.approx(0.004)


def test_what_the_user_sets_meanwhile_stays() -> None:
    switching = Switching(0.001)
    switching.begin()
    sys.setswitchinterval(0.002)
    switching.end()
    assert sys.getswitchinterval() == pytest.approx(0.002)
