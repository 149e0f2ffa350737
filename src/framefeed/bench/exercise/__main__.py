"""``python -m framefeed.bench.exercise RESULTS PAGE``: writes tables and plots into the documentation."""

from __future__ import annotations

import sys
from pathlib import Path

from framefeed.bench.exercise.page import update

if __name__ == "__main__":
    update(*(Path(argument) for argument in sys.argv[1:]))
