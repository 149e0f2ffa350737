"""Thousands of damaged files: every answer is the linear decode's picture or an error, and always the same."""

from pathlib import Path

import pytest

import clips
from random_damage import CODECS, compare

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_changed_bytes(seed: int, tmp_path: Path) -> None:
    kinds = [*clips.KINDS, *CODECS, *CODECS, *CODECS]
    counts = compare("mutants", seed=seed, first=0, most=250, minutes=60, folder=tmp_path, kinds=kinds)
    assert not counts["bad"], counts
    assert counts["good"] > 150


@pytest.mark.parametrize("seed", range(1000, 1008))
def test_lost_packets(seed: int, tmp_path: Path) -> None:
    counts = compare("losses", seed=seed, first=0, most=100, minutes=60, folder=tmp_path, kinds=[])
    assert not counts["bad"], counts
    assert counts["good"] > 60
