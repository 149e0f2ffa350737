"""Values of options: what is read, and one wording for what is not."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

import pytest

from framefeed.cli import arguments

Read = Callable[[str], Any]
PAIRS = arguments.comma_separated(arguments.count)
SHARE = arguments.number("a number above 0, at most 1", 0, 1, above=True)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (arguments.integer, "-17", -17),
        (arguments.count, " 12 ", 12),
        (arguments.whole, "0", 0),
        (arguments.seconds, "0.5", 0.5),
        (arguments.non_negative, "0", 0.0),
        (SHARE, "1", 1.0),
        (arguments.byte_size, "0", 0),
        (arguments.byte_size, "2KiB", 2048),
        (arguments.positive_size, "1MB", 10**6),
        (arguments.frame_size, "640X360", (640, 360)),
        (PAIRS, "1,8, 30", [1, 8, 30]),
    ],
)
def test_values(read: Read, text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "texts", "what"),
    [
        (arguments.integer, ("x", "", "1.0", "1_0"), "an integer"),
        (arguments.count, ("0", "-1", "x", "1.5", ""), "a positive integer"),
        (arguments.whole, ("-1", "x"), "a non-negative integer"),
        (arguments.seconds, ("0", "-1", "nan", "inf", "soon"), "a positive number of seconds"),
        (arguments.non_negative, ("-0.1", "nan", "inf"), "a non-negative number"),
        (SHARE, ("0", "1.01", "x"), "a number above 0, at most 1"),
        (arguments.byte_size, ("much", "-1"), "a size, as 1000000, 512MB or 4GiB"),
        (arguments.positive_size, ("0", "0GB"), "a positive size, as"),
        (arguments.frame_size, ("640", "0x9", "9x0", "axb", "1x2x3"), "a size as 640x360 (width x height)"),
    ],
)
def test_other_texts(read: Read, texts: tuple[str, ...], what: str) -> None:
    for text in texts:
        with pytest.raises(
            argparse.ArgumentTypeError, match=rf"^expected {re.escape(what)}.*, got {re.escape(repr(text))}$"
        ):
            read(text)


def test_a_list_names_its_bad_part() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"^expected a positive integer, got '0'$"):
        PAIRS("3,0,5")
