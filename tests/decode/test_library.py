"""PyNvVideoCodec itself, on an emulated driver, in a process of its own: what is loaded there, nobody gets rid of."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("PyNvVideoCodec") is None, reason="needs PyNvVideoCodec"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]

HERE = Path(__file__).parent
SUITES = {
    "its own": ["library_cases.py"],
    "what is rare": ["test_standin_rare.py"],
    # The others take long, and differ in what is above decoders.
    "what is usual": [
        "test_standin.py",
        "-k",
        "any_frames or end_comes or does_not_depend or damage or surfaces or memory",
    ],
}


@pytest.mark.parametrize("suite", SUITES)
def test_suite(suite: str) -> None:
    file, *chosen = SUITES[suite]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(HERE / file), *chosen],
        env=environment | {"FRAMEFEED_TEST_LIBRARY": "PyNvVideoCodec"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
