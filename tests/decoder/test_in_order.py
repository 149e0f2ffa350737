"""Requests that come in order are noticed, and get what was read ahead for them."""

from __future__ import annotations

import numpy as np
import pytest

from framefeed.decoder.in_order import GROWTH, InOrder, Span, span_of


def _ten(span: Span) -> int:
    return 10


def test_each_step_reads_further_ahead() -> None:
    order: InOrder[str] = InOrder()
    far = GROWTH**2 + 1
    assert order.ask((0, 4), lambda span: far) == (None, False, 0)
    assert order.ask((4, 8), lambda span: far) == (None, True, GROWTH)
    assert order.ask((8, 12), lambda span: far) == (None, True, GROWTH**2)
    assert order.ask((12, 16), lambda span: far) == (None, True, far)
    assert order.ask((40, 44), lambda span: far) == (None, False, 0)


def test_what_was_read_ahead_is_handed_out_once() -> None:
    order: InOrder[str] = InOrder()
    order.ask((0, 4), _ten)
    order.ask((4, 8), _ten)
    order.keep([((8, 12), "a"), ((12, 14), "b")])
    assert order.ask((8, 12), _ten)[:2] == ("a", True)
    assert order.ask((12, 14), _ten)[:2] == ("b", True)
    assert order.ask((8, 12), _ten) == (None, False, 0)


def test_another_request_drops_it() -> None:
    order: InOrder[str] = InOrder()
    order.ask((0, 4), _ten)
    order.ask((4, 8), _ten)
    order.keep([((8, 12), "a")])
    assert order.ask(None, _ten) == (None, False, 0)
    assert order.ask((8, 12), _ten) == (None, False, 0)


def test_giving_up() -> None:
    order: InOrder[str] = InOrder()
    order.ask((0, 4), _ten)
    assert order.ask((4, 8), _ten)[2] == 10
    order.give_up()
    assert order.ask((8, 12), _ten)[2] == 10  # it is tried again from there
    assert order.ask((12, 20), _ten) == (None, False, 0)  # a longer one


@pytest.mark.parametrize(
    ("wanted", "span"),
    [
        ([], None),
        ([3], (3, 4)),
        ([3, 4, 5], (3, 6)),
        ([3, 5], None),
        ([5, 4, 3], None),
        ([3, 3], None),
        ([1, 3, 2, 4], None),
    ],
)
def test_spans(wanted: list[int], span: Span | None) -> None:
    assert span_of(np.array(wanted, np.int64)) == span
