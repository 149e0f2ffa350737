"""Frames go into the model's input and boxes come back to where they were, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framefeed.infer.detection.fit import Fit, fit_frames, parse_size

SIDES = st.tuples(st.integers(1, 5000), st.integers(1, 5000))


@given(SIDES, SIDES)
def test_letterbox_keeps_the_aspect_ratio_and_fills_one_side(source: tuple[int, int], target: tuple[int, int]) -> None:
    fit = fit_frames(source, target)
    assert fit.scaled[0] == target[0] or fit.scaled[1] == target[1]
    assert 0 < fit.scaled[0] <= target[0] and 0 < fit.scaled[1] <= target[1]
    # Half a pixel is what rounding can do.
    scale = min(target[0] / source[0], target[1] / source[1])
    assert abs(fit.scaled[0] - source[0] * scale) <= 0.5 or fit.scaled[0] == 1
    assert abs(fit.scaled[1] - source[1] * scale) <= 0.5 or fit.scaled[1] == 1
    assert 0 <= target[0] - fit.scaled[0] - 2 * fit.top <= 1
    assert 0 <= target[1] - fit.scaled[1] - 2 * fit.left <= 1


@given(SIDES, SIDES, st.sampled_from(["letterbox", "stretch"]))
def test_a_frames_corners_come_back(source: tuple[int, int], target: tuple[int, int], resize: str) -> None:
    fit = fit_frames(source, target, resize)  # type: ignore[arg-type]
    whole = np.array([[fit.left, fit.top, fit.left + fit.scaled[1], fit.top + fit.scaled[0]]], np.float32)
    np.testing.assert_allclose(fit.undo(whole), [[0, 0, source[1], source[0]]], rtol=1e-6)


def test_known_sizes() -> None:
    assert fit_frames((720, 1280), (640, 640)) == Fit((720, 1280), (640, 640), (360, 640), 140, 0)
    assert fit_frames((1280, 720), (640, 640)) == Fit((1280, 720), (640, 640), (640, 360), 0, 140)
    assert fit_frames((480, 640), (960, 960)) == Fit((480, 640), (960, 960), (720, 960), 120, 0)
    assert fit_frames((720, 1280), (640, 480), "stretch").scaled == (640, 480)
    assert not fit_frames((32, 64), (16, 32)).is_padded


def test_sides_that_were_rounded_are_undone_by_their_own_scale() -> None:
    fit = fit_frames((100, 301), (64, 64))
    assert fit.scaled == (21, 64)  # 21.26 rounded
    found = fit.undo(np.array([[0.0, fit.top, 64.0, fit.top + 10.5]], np.float32))
    np.testing.assert_allclose(found, [[0, 0, 301, 50]], rtol=1e-6)


def test_boxes_end_at_the_frame() -> None:
    fit = fit_frames((50, 100), (100, 100))
    found = fit.undo(np.array([[-5.0, 10.0, 150.0, 60.0]], np.float32))
    np.testing.assert_allclose(found, [[0, 0, 100, 35]])


def test_sizes_as_people_write_them() -> None:
    assert parse_size(960) == (960, 960)
    assert parse_size("960") == (960, 960)
    assert parse_size("960x544") == (544, 960)
    assert parse_size((544, 960)) == (544, 960)
    for wrong in ("", "big", "0", "9x", "1x2x3", 0, (0, 4)):
        with pytest.raises(ValueError):
            parse_size(wrong)
    with pytest.raises(ValueError, match="letterbox"):
        fit_frames((1, 1), (1, 1), "crop")  # type: ignore[arg-type]
