"""Each layout gives the boxes that are in it; what could be several is an error that names the option."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from framefeed import ModelError
from framefeed.infer.detection.layouts import LAYOUTS, Candidates, Outputs, choose_layout

SIZE = (64, 64)
POINTS = 64 + 16 + 4

# Two frames; in the first two boxes, in the second one.
BOXES = torch.tensor([[10.0, 12.0, 30.0, 40.0], [1.0, 2.0, 3.0, 5.0], [20.0, 20.0, 60.0, 62.0]])
SCORES = torch.tensor([0.9, 0.4, 0.7])
CLASSES = torch.tensor([2, 0, 1])
FRAMES = torch.tensor([0, 0, 1])
POINT = torch.tensor([5, 70, 83])


def _middles() -> Tensor:
    return torch.cat(((BOXES[:, :2] + BOXES[:, 2:]) / 2, BOXES[:, 2:] - BOXES[:, :2]), 1)


def yolo(points: int = POINTS) -> Tensor:
    found = torch.zeros(2, 7, points)
    found[:, 4:] = 0.01
    found[FRAMES, :4, POINT] = _middles()
    found[FRAMES, 4 + CLASSES, POINT] = SCORES
    return found


def yolov5() -> Tensor:
    found = torch.zeros(2, POINTS, 8)
    found[:, :, 5:] = 0.5
    found[FRAMES, POINT, :4] = _middles()
    found[FRAMES, POINT, 4] = SCORES
    found[FRAMES, POINT, 5 + CLASSES] = 1.0
    return found


def end2end() -> Tensor:
    found = torch.zeros(2, 100, 6)
    found[FRAMES, POINT, :4] = BOXES
    found[FRAMES, POINT, 4] = SCORES
    found[FRAMES, POINT, 5] = CLASSES.float()
    return found


def boxes(by_class: bool = False) -> list[Tensor]:
    corners, scores = torch.zeros(2, POINTS, 4), torch.zeros(2, POINTS, 3)
    corners[FRAMES, POINT] = BOXES
    scores[FRAMES, POINT, CLASSES] = SCORES
    if by_class:
        return [corners, scores]
    return [corners, scores.max(2).values, scores.max(2).indices]


def read(layout: str, outputs: Outputs, num_classes: int | None = None) -> Candidates:
    return choose_layout(layout, outputs, SIZE, num_classes, "model.onnx").read(outputs, 0.25)


def check(found: Candidates) -> None:
    order = torch.argsort(-found.scores)
    wanted = torch.argsort(-SCORES)
    assert found.frames[order].tolist() == FRAMES[wanted].tolist()
    assert found.classes[order].tolist() == CLASSES[wanted].tolist()
    torch.testing.assert_close(found.scores[order], SCORES[wanted])
    torch.testing.assert_close(found.boxes[order], BOXES[wanted])
    assert found.boxes.dtype == found.scores.dtype == torch.float32


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    ("layout", "make"),
    [("yolo", yolo), ("yolo-last", lambda: yolo().transpose(1, 2)), ("yolov5", yolov5), ("end2end", end2end)],
)
def test_single_output(layout: str, make: Callable[[], Tensor], half: bool) -> None:
    output = make().half() if half else make()
    found = read(layout, [("output0", output)])
    if half:
        assert found.scores.dtype == torch.float32
        assert sorted(found.classes.tolist()) == [0, 1, 2]
    else:
        check(found)


def test_boxes_scores_classes() -> None:
    corners, scores, classes = boxes()
    check(read("boxes", [("boxes", corners), ("scores", scores), ("classes", classes)]))
    check(read("auto", [("labels", classes), ("conf", scores), ("det_boxes", corners)]))
    check(read("auto", [("a", corners), ("b", scores), ("c", classes)]))  # by shape and type
    check(read("auto", [("x", corners), ("y", boxes(by_class=True)[1])]))
    # As TensorRT's suppression gives them: what is behind the count is left over from another batch.
    order = torch.argsort(-scores, 1)
    stale = scores.gather(1, order) + 0.0
    stale[:, 5:] = 0.99
    rows = corners.gather(1, order[:, :, None].expand(-1, -1, 4))
    count = torch.tensor([[2], [1]], dtype=torch.int32)
    outputs = [("num_dets", count), ("boxes", rows), ("scores", stale), ("classes", classes.gather(1, order).float())]
    check(read("auto", outputs))


@pytest.mark.parametrize(
    ("shape", "num_classes", "layout"),
    [
        ((2, 84, 8400), None, "yolo"),
        ((2, 84, 8400), 80, "yolo"),
        ((2, 8400, 84), 80, "yolo-last"),
        ((2, 25200, 85), 80, "yolov5"),
        ((2, 300, 6), None, "end2end"),
        ((2, 7, 84), 3, "yolo"),
    ],
)
def test_found_by_shape(shape: tuple[int, ...], num_classes: int | None, layout: str) -> None:
    outputs = [("output0", torch.zeros(shape))]
    assert choose_layout("auto", outputs, (640, 640), num_classes, "m").layout == layout


@pytest.mark.parametrize(
    ("shape", "num_classes"),
    [
        ((2, 8400, 84), None),  # 80 classes, or 79 with objectness
        ((2, 8400, 6), None),  # as many points as the image has: 2 classes, or 1 with objectness
        ((2, 300, 6), 1),  # suppressed, or objectness
        ((2, 84, 8400), 79),
        ((2, 50, 50), None),
        ((2, 4, 100), None),
    ],
)
def test_what_could_be_several_is_an_error(shape: tuple[int, ...], num_classes: int | None) -> None:
    with pytest.raises(ModelError, match=r"m\.onnx: .*--layout.*yolo"):
        choose_layout("auto", [("output0", torch.zeros(shape))], (640, 640), num_classes, "m.onnx")


def test_outputs_that_are_none() -> None:
    for outputs in ([("x", torch.zeros(2, 5))], [("x", torch.zeros(2, 5)), ("y", torch.zeros(2, 6))], []):
        with pytest.raises(ModelError, match=r"m\.onnx"):
            choose_layout("auto", outputs, SIZE, None, "m.onnx")
    with pytest.raises(ModelError, match="does not fit layout 'end2end'"):
        choose_layout("end2end", [("x", torch.zeros(2, 7, 84))], SIZE, None, "m")
    with pytest.raises(ModelError, match=r"3 classes .* 5 names"):
        choose_layout("yolo", [("x", torch.zeros(2, 7, 84))], SIZE, 5, "m")
    for layout in ("yolo-last", "yolov5"):  # it would be read, and nothing found
        with pytest.raises(ModelError, match=rf"at 7 points in layout '{layout}': it may be transposed.*--classes"):
            choose_layout(layout, [("x", torch.zeros(2, 7, 84))], SIZE, None, "m")
    assert choose_layout("yolov5", [("x", torch.zeros(2, 7, 84))], SIZE, 79, "m").num_classes == 79
    with pytest.raises(ModelError, match="no classes"):
        choose_layout("auto", [("boxes", torch.zeros(2, 9, 4)), ("scores", torch.zeros(2, 9))], SIZE, None, "m")
    with pytest.raises(ValueError, match="layout must be one of"):
        choose_layout("ssd", [("x", torch.zeros(2, 7, 84))], SIZE, None, "m")
    assert LAYOUTS[0] == "auto"
