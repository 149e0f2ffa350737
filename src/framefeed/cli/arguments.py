"""Values of options that several commands have; bad ones say what is possible."""

from __future__ import annotations

import argparse
import math
import os
import sys

__all__ = ["count", "search_here", "seconds", "whole"]


def count(text: str) -> int:
    """1, 2, 3 ..."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of that kind; possible are 1, 2, 3 ...")
    return int(text)


def whole(text: str) -> int:
    """0, 1, 2 ..."""
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of that kind; possible are 0, 1, 2 ...")
    return int(text)


def seconds(text: str) -> float:
    """More than none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; possible are seconds, as 5 or 0.5")
    return value


def search_here() -> list[str]:
    """Lets ``module:name`` be a module of the current folder, as ``python -m`` does; gives that folder."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    return [here]
