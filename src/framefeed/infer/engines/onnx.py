"""ONNX models, run by ONNX Runtime."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from framefeed.errors import MissingBackend, ModelError
from framefeed.infer.detection.layouts import Outputs
from framefeed.infer.engines.base import check_input, parse_names

__all__ = ["OnnxEngine", "runs_on_gpu"]

_DTYPES = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16}
_NUMPY = {torch.float32: np.float32, torch.float16: np.float16}
_PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingBackend(
            "onnxruntime", f"cannot be loaded ({error}); .onnx models need it: pip install framefeed[infer]"
        ) from error
    return onnxruntime


def runs_on_gpu() -> bool:
    """Returns True if the installed ONNX Runtime can use a GPU."""
    return _PROVIDERS["cuda"] in _onnxruntime().get_available_providers()


class OnnxEngine:
    """ONNX Runtime session.

    On a GPU, inputs and outputs are bound in place, without copies, and the session uses the stream that was current
    when it was created, unless that was the default stream.

    Args:
        path: The file.
        device: The device.
        provider: Provider on a GPU, ``"cuda"`` or ``"tensorrt"``. TensorRT takes minutes to build its engine.
        num_threads: Number of threads on the CPU.

    Raises:
        ModelError: The model cannot be loaded, or does not take frames.
        MissingBackend: ONNX Runtime or the provider is missing.
    """

    concurrent = True

    def __init__(self, path: str, device: torch.device, *, provider: str = "cuda", num_threads: int = 0) -> None:
        runtime = _onnxruntime()
        self.name = path
        self._runtime = runtime
        self._device = device
        self._shares_stream = False
        options = runtime.SessionOptions()
        options.intra_op_num_threads = num_threads
        options.log_severity_level = 3
        # Idle threads would otherwise spin, on CPUs that decode frames.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = self._providers(provider)
        try:
            self._session = runtime.InferenceSession(path, options, providers=providers)
        except Exception as error:  # its errors have no documented base class
            if not os.path.exists(path):
                raise ModelError(path, "no such file") from None
            raise ModelError(path, f"ONNX Runtime cannot load it: {_first_line(error)}") from error
        inputs = self._session.get_inputs()
        found = ", ".join(f"{each.name} {each.shape} {each.type}" for each in inputs) or "nothing"
        if len(inputs) != 1:
            raise ModelError(path, f"unsupported input {found}; expected one input (N, 3, height, width)")
        self._input = inputs[0].name
        self._outputs = [each.name for each in self._session.get_outputs()]
        said = self._session.get_modelmeta().custom_metadata_map
        signature = check_input(path, found, inputs[0].shape, _DTYPES.get(inputs[0].type))
        self.signature = replace(signature, names=parse_names(said.get("names", "")))

    def _providers(self, provider: str) -> list[Any]:
        if self._device.type == "cpu":
            return ["CPUExecutionProvider"]
        there = self._runtime.get_available_providers()
        if _PROVIDERS[provider] not in there:
            raise MissingBackend(
                "onnxruntime",
                f"has no {_PROVIDERS[provider]}, only {', '.join(there)}; install onnxruntime-gpu in its place, use "
                "device='cpu', or a .pt2 model",
            )
        stream = torch.cuda.current_stream(self._device).cuda_stream
        options = {"device_id": str(self._device.index or 0)}
        if stream:  # the default stream cannot be passed: the session then uses its own, see below
            options["user_compute_stream"] = str(stream)
            self._shares_stream = True
        wanted = [_PROVIDERS["tensorrt"]] if provider == "tensorrt" else []
        return [(name, options) for name in [*wanted, _PROVIDERS["cuda"]]] + ["CPUExecutionProvider"]

    def run(self, frames: Tensor) -> Outputs:
        """Runs the session."""
        try:
            found = self._run_on_cpu(frames) if self._device.type == "cpu" else self._run_on_gpu(frames)
        except Exception as error:
            raise ModelError(
                self.name, f"ONNX Runtime failed on a batch {tuple(frames.shape)}: {_first_line(error)}"
            ) from error
        return list(zip(self._outputs, found, strict=True))

    def _run_on_cpu(self, frames: Tensor) -> list[Tensor]:
        return [torch.from_numpy(array) for array in self._session.run(None, {self._input: frames.numpy()})]

    def _run_on_gpu(self, frames: Tensor) -> list[Tensor]:
        binding = self._session.io_binding()
        number = self._device.index or 0
        binding.bind_input(self._input, "cuda", number, _NUMPY[frames.dtype], list(frames.shape), frames.data_ptr())
        for name in self._outputs:
            binding.bind_output(name, "cuda", number)
        options = self._runtime.RunOptions()
        if self._shares_stream:
            options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        else:
            torch.cuda.current_stream(self._device).synchronize()
        self._session.run_with_iobinding(binding, options)
        return [torch.as_tensor(_OnDevice(value), device=self._device) for value in binding.get_outputs()]


class _OnDevice:
    """ONNX Runtime memory in a form that torch can view; torch keeps this object alive."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.__cuda_array_interface__ = {
            "shape": tuple(value.shape()),
            "typestr": _TYPES[value.data_type()],
            "data": (value.data_ptr(), False),
            "version": 3,
        }


_TYPES = {
    "tensor(float)": "<f4",
    "tensor(float16)": "<f2",
    "tensor(double)": "<f8",
    "tensor(int64)": "<i8",
    "tensor(int32)": "<i4",
}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
