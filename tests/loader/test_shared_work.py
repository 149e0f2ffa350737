"""Work that several threads share: all is done once, in order, whoever comes; and what goes wrong is told."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from framefeed.loader.shared_work import SharedWork


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_all_is_done_once(helpers: int) -> None:
    done: list[int] = []

    def make(number: int) -> int:
        time.sleep(0.001)
        done.append(number)
        return number * number

    work = SharedWork(make, range(20))
    with ThreadPoolExecutor(4) as pool:
        helping = [pool.submit(work.help) for _ in range(helpers)]
        assert work.finish() == [number * number for number in range(20)]
        for each in helping:
            each.result()
    assert sorted(done) == list(range(20))
    work.help()  # one who comes late has nothing to do
    assert len(done) == 20


def test_nothing_to_do() -> None:
    assert SharedWork(int, []).finish() == []


def test_what_others_have_begun_is_waited_for() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def make(number: int) -> int:
        if not number:
            begun.set()
            go_on.wait(10)
        return number

    work = SharedWork(make, [0, 1])
    with ThreadPoolExecutor(2) as pool:
        pool.submit(work.help)
        assert begun.wait(10)
        finished = pool.submit(work.finish)
        time.sleep(0.05)
        assert not finished.done()
        go_on.set()
        assert finished.result(10) == [0, 1]


def test_an_error_is_raised_where_it_is_finished() -> None:
    begun = threading.Event()

    def make(number: int) -> int:
        if number == 1:
            begun.set()
            raise KeyError("no")
        begun.wait(10)
        return number

    work = SharedWork(make, range(2))
    with ThreadPoolExecutor(1) as pool:
        helping = pool.submit(work.help)
        with pytest.raises(KeyError, match="no"):
            work.finish()
        helping.result(10)
