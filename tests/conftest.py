"""Shared by all tests: where clips are kept, and which modules they can import."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

# Set where tests run side by side; commands would take it for the width of a terminal.
os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for generated clips, shared by the whole run: each kind is made once."""
    return tmp_path_factory.mktemp("clips")
