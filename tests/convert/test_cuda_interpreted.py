"""The GPU's kernels without a GPU: a part of their tests, and loaders that launch them, run by Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent

# One of each kind; the whole takes the interpreter several minutes.
CHOSEN = """
    test_every_matrix_and_range and (1-9 or 2-1)
    or test_every_size and size1 and HWC or test_turned_and_cropped and CHW and crop1 and not 10le
    or test_scaled and (resize1 or resize7) and not 12le
    or test_every_type_and_order and (fchw or whcf) or test_every_crop_and_flip and bfloat16 and random_crop
    or test_turned_and_cropped_at_once and random_crop or test_at_once and scale1 and RGB
    or test_any_pitch or test_copies or test_unused_bits or test_tables or test_several_threads
"""


pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the tests themselves run by the interpreter"),
]


def _run(*arguments: str) -> str:
    """What Python prints, which must end well."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=TESTS.parent,
        env=os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def test_kernels_by_the_interpreter() -> None:
    chosen = " ".join(CHOSEN.split())
    assert " passed" in _run("-m", "pytest", "-k", chosen, str(TESTS / "gpu" / "test_kernels.py"))


@pytest.mark.skipif(importlib.util.find_spec("PyNvVideoCodec") is None, reason="needs PyNvVideoCodec")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_loaders_that_are_drawn_at_random() -> None:
    """All that runs on a GPU, from the file to the batch."""
    assert " good" in _run(str(TESTS / "random_loaders.py"), "--most", "4", "--minutes", "5")
