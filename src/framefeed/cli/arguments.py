"""Values of options. An error says what is expected and what was given."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable
from typing import TypeVar

__all__ = [
    "byte_size",
    "comma_separated",
    "count",
    "expected",
    "frame_size",
    "integer",
    "non_negative",
    "number",
    "positive_size",
    "search_here",
    "seconds",
    "whole",
]

T = TypeVar("T")


def expected(what: str, text: str) -> argparse.ArgumentTypeError:
    """Returns the error for a value that is something else."""
    return argparse.ArgumentTypeError(f"expected {what}, got {text!r}")


def integer(text: str) -> int:
    """Reads ... -1, 0, 1 ..."""
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        raise expected("an integer", text)
    return int(text)


def count(text: str) -> int:
    """Reads 1, 2, 3 ..."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise expected("a positive integer", text)
    return int(text)


def whole(text: str) -> int:
    """Reads 0, 1, 2 ..."""
    if not text.strip().isdecimal():
        raise expected("a non-negative integer", text)
    return int(text)


def number(what: str, low: float, high: float = math.inf, *, above: bool = False) -> Callable[[str], float]:
    """Makes a reader of finite numbers from ``low`` to ``high``; ``above`` leaves out ``low`` itself."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value <= high) or (above and value == low):
            raise expected(what, text)
        return value

    return read


seconds = number("a positive number of seconds, as 5 or 0.5", 0, above=True)
non_negative = number("a non-negative number", 0)


def byte_size(text: str) -> int:
    """Reads 0, 512MB, 8GiB ..."""
    from framefeed._util.limits import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError:
        raise expected("a size, as 1000000, 512MB or 4GiB", text) from None


def positive_size(text: str) -> int:
    """Reads 512MB, 8GiB ..., but not 0."""
    size = byte_size(text)
    if not size:
        raise expected("a positive size, as 1000000, 512MB or 4GiB", text)
    return size


def frame_size(text: str) -> tuple[int, int]:
    """Reads 640x360 as width and height."""
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text.lower())
    if match is None:
        raise expected("a size as 640x360 (width x height)", text)
    return int(match[1]), int(match[2])


def comma_separated(read: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Makes a reader of values with commas between them."""
    return lambda text: [read(part) for part in text.split(",")]


def search_here() -> list[str]:
    """Lets ``module:name`` be a module of the current folder, as ``python -m`` does; returns that folder."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    return [here]
