"""The tiny detector as an ONNX graph, written node by node, because torch's exporter needs another package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from framefeed.errors import MissingBackend
from framefeed.testing.shape_detector import ShapeDetector

__all__ = ["write_onnx"]

OPSET = 17
INT32 = 6  # ONNX's type numbers


def write_onnx(detector: ShapeDetector, path: Path, batch: int | None) -> None:
    """Writes the file; see ``framefeed.testing.shape_detector.export``."""
    try:
        import onnx
    except ImportError as error:
        raise MissingBackend("onnx", f"cannot be loaded ({error}); needed to write .onnx: pip install onnx") from error
    graph = _Graph(onnx)
    _forward(detector, graph)
    types = onnx.TensorProto
    kind = types.FLOAT16 if str(next(detector.parameters()).dtype) == "torch.float16" else types.FLOAT
    count: int | str = batch or "batch"
    names = {
        "yolo": [("output0", kind, 3)],
        "boxes": [("boxes", kind, 3), ("scores", kind, 2), ("classes", types.INT32, 2)],
    }
    outputs = [
        onnx.helper.make_tensor_value_info(name, type_, [count, *[None] * (rank - 1)])
        for name, type_, rank in names[detector.layout]
    ]
    frames = onnx.helper.make_tensor_value_info("images", kind, [count, 3, *detector.size])
    whole = onnx.helper.make_graph(graph.nodes, "shapes", [frames], outputs, graph.constants)
    model = onnx.helper.make_model(whole, opset_imports=[onnx.helper.make_opsetid("", OPSET)])
    model.ir_version = 8  # matches the opset; the newest needs the newest ONNX Runtime
    onnx.checker.check_model(model)
    onnx.save(model, path)


class _Graph:
    """Nodes and constants, named in order."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        self.constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def conv(self, layer: nn.Conv2d, frames: str) -> str:
        weights = [self.constant(layer.weight)] + ([] if layer.bias is None else [self.constant(layer.bias)])
        down, right = (int(side) for side in layer.padding)
        return self.node(
            "Conv",
            frames,
            *weights,
            strides=list(layer.stride),
            pads=[down, right, down, right],
            group=layer.groups,
        )


def _forward(detector: ShapeDetector, graph: _Graph) -> None:
    """Adds the operations of ``ShapeDetector.forward``."""
    dtype = next(detector.parameters()).detach().cpu().numpy().dtype

    def number(value: float) -> str:
        return graph.constant(np.array(value, dtype))

    share = graph.node("Clip", graph.conv(detector.color, "images"), number(0.0), number(1.0))
    score = graph.node("Clip", graph.conv(detector.near, share), number(0.0), number(1.0))
    if len(detector.work):
        hidden = "images"
        for layer in detector.work:
            hidden = graph.conv(layer, hidden) if isinstance(layer, nn.Conv2d) else graph.node("Relu", hidden)
        mean = graph.node("ReduceMean", hidden, axes=[1, 2, 3], keepdims=1)
        score = graph.node("Add", score, graph.node("Mul", mean, number(0.0)))
    middles, sizes = [], []
    for place, count, total in (
        (detector.place_x, detector.count_x, detector.sum_x),
        (detector.place_y, detector.count_y, detector.sum_y),
    ):
        size = graph.conv(count, share)
        away = graph.node("Div", graph.conv(total, share), graph.node("Max", size, number(1.0)))
        middles.append(graph.node("Add", graph.constant(place), away))
        sizes.append(size)
    if detector.layout == "boxes":
        halves = [graph.node("Mul", size, number(0.5)) for size in sizes]
        sides = [graph.node(step, *pair) for step in ("Sub", "Add") for pair in zip(middles, halves, strict=True)]
        column = graph.constant(np.array([0, -1, 1]))
        graph.node("Concat", *(graph.node("Reshape", side, column) for side in sides), axis=2, output="boxes")
        flat = graph.constant(np.array([0, -1]))
        graph.node("Reshape", score, flat, output="scores")
        classes = graph.node("Add", graph.node("Mul", score, number(0.0)), graph.constant(detector.numbers))
        whole = graph.node("Cast", classes, to=INT32)
        graph.node("Reshape", whole, flat, output="classes")
        return
    axis = graph.constant(np.array([1]))
    whole_score = graph.node("Max", graph.node("ReduceSum", score, axis, keepdims=1), number(1e-3))
    weights = graph.node("Div", score, whole_score)
    sides = [graph.node("ReduceSum", graph.node("Mul", side, weights), axis, keepdims=1) for side in (*middles, *sizes)]
    joined = graph.node("Concat", *sides, score, axis=1)
    graph.node("Reshape", joined, graph.constant(np.array([0, 7, -1])), output="output0")
