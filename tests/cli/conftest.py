"""Runs commands in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import clips
from framefeed.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``framefeed`` with these arguments."""

    def _run(*argv: object) -> Ran:
        capsys.readouterr()
        try:
            code = main([str(word) for word in argv])
        except SystemExit as stopped:  # argparse
            assert isinstance(stopped.code, int)
            code = stopped.code
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return _run


@pytest.fixture(scope="session")
def clip(clip_folder: Path) -> Path:
    """Open groups, 48 numbered frames."""
    return clips.make("h264_open_gop", clip_folder)
