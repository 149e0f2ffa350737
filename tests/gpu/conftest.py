"""Tests that need a GPU. Without one they are skipped, or run by Triton's interpreter where TRITON_INTERPRET=1.

Where FRAMEFEED_REQUIRE_GPU=1 promises one, nothing is run when it is missing: skipped tests would look like good ones.
"""

from __future__ import annotations

import importlib.util
import json
import os

import pytest
import torch

import interpreted
from framefeed._util.versions import source_digest

HAS_TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"
MISSING = "needs CUDA" if HAS_TRITON else "needs Triton"

# Nothing here can even be imported without Triton.
collect_ignore = [] if HAS_TRITON else ["test_kernels.py"]

if os.environ.get("FRAMEFEED_REQUIRE_GPU", "0") not in ("", "0"):
    needed = {
        "a GPU that torch can use": torch.cuda.is_available(),
        "Triton, not interpreted": HAS_TRITON and not INTERPRETED,
        "PyNvVideoCodec": importlib.util.find_spec("PyNvVideoCodec") is not None,
    }
    if lacking := [what for what, there in needed.items() if not there]:
        raise pytest.UsageError(f"FRAMEFEED_REQUIRE_GPU=1 promises what is missing here: {'; '.join(lacking)}")

if INTERPRETED:
    interpreted.count_with_tensors()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes each test in the file that FRAMEFEED_TEST_LINES names: a run that is cut off keeps what it had."""
    lines = os.environ.get("FRAMEFEED_TEST_LINES")
    if lines and (report.when == "call" or not report.passed):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext[-1000:]
        seconds = round(report.duration, 2)
        line = {"test": report.nodeid, "outcome": report.outcome, "seconds": seconds, "why": why}
        with open(lines, "a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "source": source_digest()}) + "\n")


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where kernels run: the GPU, or the CPU under Triton's interpreter."""
    if INTERPRETED:
        return torch.device("cpu")
    if not (HAS_TRITON and torch.cuda.is_available()):
        pytest.skip(MISSING)
    return torch.device("cuda", torch.cuda.current_device())
