"""Choice of engine and device for a model."""

from __future__ import annotations

import os
from glob import escape, glob
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from framefeed.device import resolve_device
from framefeed.errors import ModelError
from framefeed.infer.engines.base import ModelEngine
from framefeed.infer.engines.call import import_callable, is_callable_name, open_callable
from framefeed.infer.engines.onnx import OnnxEngine, runs_on_gpu
from framefeed.infer.engines.torch_program import open_module, open_pt2, open_torchscript

__all__ = ["choose_device", "model_identity", "model_name", "open_engine"]

KINDS = ".onnx, .pt2 (torch.export), .ts and .pt (TorchScript), .engine and .trt (TensorRT), or module:function"
_SCRIPT = (".ts", ".pt", ".pth", ".torchscript")
_TENSORRT = (".engine", ".trt")


def choose_device(device: str | torch.device, model: Any) -> torch.device:
    """Returns the device for decoding and the model.

    Args:
        device: ``"cpu"``, ``"cuda"``, ``"cuda:N"``, or ``"auto"`` for a GPU if decoding and the model can use one.
        model: The model.

    Raises:
        MissingBackend: The requested GPU cannot be used.
    """
    chosen = resolve_device(device)
    if device == "auto" and chosen.type == "cuda" and _suffix(model) == ".onnx" and not runs_on_gpu():
        return torch.device("cpu")
    return chosen


def _suffix(model: Any) -> str:
    return Path(model).suffix.lower() if isinstance(model, str | os.PathLike) else ""


def model_name(model: Any) -> str:
    """Returns the name of a model for errors and reports."""
    if isinstance(model, str | os.PathLike):
        return os.fsdecode(model)
    return f"{type(model).__module__}.{getattr(model, '__qualname__', type(model).__qualname__)}"


def model_identity(model: Any) -> dict[str, str]:
    """Returns what must be equal to resume a run: for files, their content.

    Raises:
        ModelError: The file cannot be read.
    """
    name = model_name(model)
    if not isinstance(model, str | os.PathLike) or is_callable_name(name):
        return {"model": name}
    digest = sha256()
    # Weights that are too large for an ONNX file are stored in files beside it.
    beside = [path for path in sorted(glob(escape(name) + "*")) if path in (f"{name}.data", f"{name}_data")]
    try:
        for path in (name, *beside):
            with open(path, "rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
    except OSError as error:
        raise ModelError(name, f"cannot be read: {error.strerror or error}") from error
    return {"model": Path(name).name, "model_sha256": digest.hexdigest()}


def open_engine(
    model: Any,
    device: torch.device,
    *,
    trust_model: bool = False,
    provider: str = "cuda",
    num_threads: int = 0,
) -> ModelEngine:
    """Loads a model.

    Args:
        model: A file, ``"module:name"``, or a callable.
        device: The device.
        trust_model: Allows the file to run code of its own while loading.
        provider: ONNX Runtime provider on a GPU: ``"cuda"`` or ``"tensorrt"``.
        num_threads: Threads of ONNX Runtime on the CPU, 0 for its default.

    Raises:
        ModelError: The model cannot be loaded, or does not take frames.
        MissingBackend: A required library is not installed.
    """
    name = model_name(model)
    if not isinstance(model, str | os.PathLike):
        if not callable(model):
            raise ModelError(name, f"must be a file or a callable; supported: {KINDS}")
        return open_callable(model, name, device)
    if is_callable_name(name):
        return open_callable(import_callable(name), name, device)
    suffix = _suffix(model)
    if not os.path.isfile(name):
        raise ModelError(name, f"no such file; supported models: {KINDS}")
    if suffix == ".onnx":
        return OnnxEngine(name, device, provider=provider, num_threads=num_threads)
    if suffix == ".pt2":
        return open_pt2(name, device, trust=trust_model)
    if suffix in _TENSORRT:
        from framefeed.infer.engines.tensorrt import TensorRTEngine

        return TensorRTEngine(name, device)
    if suffix in _SCRIPT:
        if _is_torchscript(name):
            return open_torchscript(name, device)
        if trust_model:
            return open_module(name, device)
        raise ModelError(
            name,
            "is a pickle, not TorchScript: loading it would run any code in it; export the model to .onnx or .pt2 "
            "(torch.export.save), or, if you trust the file, pass trust_model=True (--trust-model)",
        )
    raise ModelError(name, f"unknown model type; supported: {KINDS}")


def _is_torchscript(path: str) -> bool:
    """Returns True if an archive contains TorchScript code."""
    try:
        records = torch._C.PyTorchFileReader(path).get_all_records()
    except RuntimeError:
        return False
    return "constants.pkl" in records
