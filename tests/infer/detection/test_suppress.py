"""Suppression, per class and per frame, is what a plain one gives; what else is in the batch makes no difference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from framefeed import MissingBackend
from framefeed.infer.detection import suppress as module
from framefeed.infer.detection.layouts import Candidates
from framefeed.infer.detection.suppress import Detections, find_suppressor, suppress


def candidates(count: int, seed: int, frames: int = 3, classes: int = 4) -> Candidates:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(-20, 80, (count, 2))
    boxes = np.concatenate((corners, corners + rng.uniform(1, 40, (count, 2))), 1)
    return Candidates(
        torch.from_numpy(rng.integers(0, frames, count)),
        torch.from_numpy(boxes.astype(np.float32)),
        torch.from_numpy(rng.uniform(0.1, 1.0, count).astype(np.float32)),
        torch.from_numpy(rng.integers(0, classes, count)),
    )


def plainly(found: Candidates, iou: float) -> list[int]:
    """The textbook's way, one box after the other."""
    boxes = found.boxes.double().numpy()
    kept: list[int] = []
    for place in np.argsort(-found.scores.numpy(), kind="stable").tolist():
        for other in kept:
            if found.frames[place] != found.frames[other] or found.classes[place] != found.classes[other]:
                continue
            low = np.maximum(boxes[place, :2], boxes[other, :2])
            high = np.minimum(boxes[place, 2:], boxes[other, 2:])
            common = np.prod(np.maximum(high - low, 0))
            areas = [np.prod(boxes[each, 2:] - boxes[each, :2]) for each in (place, other)]
            if common / (sum(areas) - common) > iou:
                break
        else:
            kept.append(place)
    return kept


def rows(found: Detections) -> list[tuple[int, int, float]]:
    return list(zip(found.frames.tolist(), found.classes.tolist(), found.scores.tolist(), strict=True))


class Textbook:
    """Stands for ``torchvision.ops``, which knows neither frames nor classes."""

    @staticmethod
    def nms(boxes: torch.Tensor, scores: torch.Tensor, iou: float) -> torch.Tensor:
        assert boxes.dtype == scores.dtype
        alike = torch.zeros(len(scores), dtype=torch.int64)
        return torch.tensor(plainly(Candidates(alike, boxes, scores, alike), iou), dtype=torch.int64)


@pytest.mark.parametrize("library", ["there", "torchvision"])
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.integers(0, 10_000), st.sampled_from([0.1, 0.45, 0.7]))
def test_as_the_textbook_has_it(library: str, count: int, seed: int, iou: float) -> None:
    found = candidates(count, seed)
    kept = plainly(found, iou)
    wanted = [(int(found.frames[k]), int(found.classes[k]), float(found.scores[k])) for k in kept]
    with pytest.MonkeyPatch.context() as patch:
        if library == "torchvision":
            patch.setattr(module, "_torchvision", lambda: Textbook)
        got = suppress(found, iou, 1000)
    assert rows(got) == sorted(wanted, key=lambda row: (row[0], -row[2]))


def test_classes_stay_apart_where_boxes_reach_over_the_edge() -> None:
    # OpenCV moves classes apart by the largest coordinate: these two would lie on each other.
    boxes = torch.tensor([[71.0, 71.0, 90.0, 90.0], [-20.0, -20.0, -1.0, -1.0]])
    found = Candidates(torch.zeros(2, dtype=torch.int64), boxes, torch.tensor([0.9, 0.8]), torch.tensor([0, 1]))
    assert len(suppress(found, 0.45, 1000).scores) == 2


def test_a_frame_alone_gives_what_it_gives_in_a_batch() -> None:
    whole = candidates(200, 1)
    together = suppress(whole, 0.45, 1000)
    for frame in range(3):
        chosen = torch.nonzero(whole.frames == frame)[:, 0]
        alone = suppress(
            Candidates(whole.frames[chosen], whole.boxes[chosen], whole.scores[chosen], whole.classes[chosen]),
            0.45,
            1000,
        )
        of_frame = together.frames == frame
        np.testing.assert_array_equal(alone.boxes, together.boxes[of_frame])
        np.testing.assert_array_equal(alone.scores, together.scores[of_frame])


def test_not_more_than_asked_for() -> None:
    found = suppress(candidates(100, 2), 1.0, 7)
    assert [int((found.frames == frame).sum()) for frame in range(3)] == [7, 7, 7]
    everything = suppress(candidates(100, 2), 1.0, 1000)
    for frame in range(3):
        best = everything.scores[everything.frames == frame][:7]
        np.testing.assert_array_equal(found.scores[found.frames == frame], best)


def test_what_the_model_has_suppressed_is_only_put_in_order() -> None:
    found = candidates(50, 3)
    got = suppress(found, 0.01, 1000, suppressed=True)
    assert len(got.scores) == 50
    assert rows(got) == sorted(rows(got), key=lambda row: (row[0], -row[2]))


def test_boxes_without_an_area_are_left_out() -> None:
    found = candidates(3, 4, frames=1)
    boxes = found.boxes.clone()
    boxes[0, 2] = boxes[0, 0]
    boxes[1, 3] = boxes[1, 1] - 5
    got = suppress(Candidates(found.frames, boxes, found.scores, found.classes), 0.45, 1000)
    assert got.scores.tolist() == found.scores[2:].tolist()


def test_too_many_candidates_are_cut_by_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CANDIDATES", 20)
    found = candidates(200, 5)
    got = suppress(found, 1.0, 1000)
    for frame in range(3):
        of_frame = np.sort(found.scores[found.frames == frame].numpy())[::-1]
        np.testing.assert_array_equal(got.scores[got.frames == frame], of_frame[:20])


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_suppressor() in ("torchvision", "opencv")
    monkeypatch.setattr(module, "_torchvision", lambda: None)
    monkeypatch.setattr(module, "_opencv", lambda: None)
    with pytest.raises(MissingBackend, match=r"pip install framefeed\[infer\]"):
        find_suppressor()
