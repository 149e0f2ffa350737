"""Shared by all tests: where clips are kept, and which modules they can import."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

# Set where tests run side by side; commands would take it for the width of a terminal.
os.environ.pop("COLUMNS", None)

# There, OpenMP's threads have no CPU of their own, and those that wait keep the others from working.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish() -> None:
    """Lets the garbage collector leave out what is there for all tests, torch above all: each time it takes 0.15 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for generated clips, shared by the whole run: each kind is made once."""
    return tmp_path_factory.mktemp("clips")
