"""Model engines: ONNX, TensorRT, torch programs and Python callables behind one interface."""

from __future__ import annotations

from framefeed.infer.engines.base import ModelEngine, Signature
from framefeed.infer.engines.choose import choose_device, model_identity, open_engine

__all__ = ["ModelEngine", "Signature", "choose_device", "model_identity", "open_engine"]
