"""TensorRT engines; TensorRT is imported on first use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from framefeed.errors import MissingBackend, ModelError
from framefeed.infer.detection.layouts import Outputs
from framefeed.infer.engines.base import check_input

__all__ = ["TensorRTEngine"]


def _tensorrt() -> Any:
    try:
        import tensorrt
    except ImportError as error:
        raise MissingBackend(
            "tensorrt",
            f"cannot be loaded ({error}); .engine and .trt models need the version that built them: pip install "
            "tensorrt; or use the .onnx model of the engine",
        ) from error
    return tensorrt


class TensorRTEngine:
    """Engine built by TensorRT for this kind of GPU.

    Args:
        path: The file.
        device: The GPU.

    Raises:
        ModelError: The engine cannot be loaded, or does not take frames.
        MissingBackend: TensorRT is not installed, or there is no GPU.
    """

    concurrent = False

    def __init__(self, path: str, device: torch.device) -> None:
        if device.type != "cuda":
            raise MissingBackend(path, "TensorRT engines need a GPU: device='cuda'")
        trt = _tensorrt()
        self.name = path
        self._trt = trt
        self._device = device
        # Host code in engines stays disabled, TensorRT's default.
        self._runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise ModelError(path, f"cannot be read: {error.strerror or error}") from error
        # Ultralytics' exporter prepends a description: the length of a JSON text, and the text.
        length = int.from_bytes(data[:4], "little")
        if data[4:5] == b"{" and data[3 + length : 4 + length] == b"}":
            data = data[4 + length :]
        self._engine = self._runtime.deserialize_cuda_engine(data)
        if self._engine is None:
            raise ModelError(
                path,
                f"TensorRT {trt.__version__} cannot load it: it was built by another version or for another GPU; "
                "rebuild it here, or use the .onnx model",
            )
        self._context = self._engine.create_execution_context()
        names = [self._engine.get_tensor_name(place) for place in range(self._engine.num_io_tensors)]
        inputs = [name for name in names if self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        self._outputs = [name for name in names if name not in inputs]
        found = ", ".join(f"{name} {tuple(self._engine.get_tensor_shape(name))}" for name in inputs) or "nothing"
        if len(inputs) != 1:
            raise ModelError(path, f"unsupported input {found}; expected one input (N, 3, height, width)")
        self._input = inputs[0]
        shape = tuple(self._engine.get_tensor_shape(self._input))
        signature = check_input(path, found, shape, self._dtype(self._input))
        if signature.batch is None:  # any batch size up to the engine's limit
            largest = self._engine.get_tensor_profile_shape(self._input, 0)[2]
            signature = replace(signature, max_batch=int(largest[0]))
        self.signature = signature

    def _dtype(self, name: str) -> torch.dtype | None:
        kinds = {"FLOAT": torch.float32, "HALF": torch.float16, "INT32": torch.int32, "INT64": torch.int64}
        return kinds.get(self._engine.get_tensor_dtype(name).name)

    def run(self, frames: Tensor) -> Outputs:
        """Launches it on the current stream."""
        context = self._context
        context.set_input_shape(self._input, tuple(frames.shape))
        context.set_tensor_address(self._input, frames.data_ptr())
        found = []
        for name in self._outputs:
            shape, dtype = tuple(context.get_tensor_shape(name)), self._dtype(name)
            if dtype is None or min(shape, default=0) < 0:
                raise ModelError(self.name, f"its output {name} {shape} has a dynamic shape or an unsupported dtype")
            tensor = torch.empty(shape, dtype=dtype, device=self._device)
            context.set_tensor_address(name, tensor.data_ptr())
            found.append((name, tensor))
        if not context.execute_async_v3(torch.cuda.current_stream(self._device).cuda_stream):
            raise ModelError(self.name, f"TensorRT failed on a batch {tuple(frames.shape)}")
        return found
