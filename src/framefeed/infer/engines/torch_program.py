"""torch programs: ``torch.export`` (.pt2), TorchScript, and trusted pickled modules."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from framefeed.errors import ModelError
from framefeed.infer.detection.layouts import Outputs
from framefeed.infer.engines.base import Signature, check_input, named_outputs, parse_names
from framefeed.infer.engines.pt2_check import check_pt2

__all__ = ["TorchEngine", "open_module", "open_pt2", "open_torchscript"]


class TorchEngine:
    """A torch callable.

    Args:
        name: Its name in errors.
        call: ``call(frames)``.
        signature: Its input.
        concurrent: True if several threads may call it at the same time.
    """

    def __init__(
        self, name: str, call: Callable[[Tensor], Any], signature: Signature, *, concurrent: bool = True
    ) -> None:
        self.name = name
        self.signature = signature
        self.concurrent = concurrent
        self._call = call

    def run(self, frames: Tensor) -> Outputs:
        """Calls the model."""
        try:
            with torch.inference_mode():
                found = self._call(frames)
        except torch.OutOfMemoryError as error:
            reason = f"out of memory for a batch {tuple(frames.shape)}; use a smaller batch size"
            raise ModelError(self.name, reason) from error
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            lines = str(error).strip().splitlines()
            what = lines[-1] if lines else type(error).__name__
            raise ModelError(self.name, f"it failed on a batch {tuple(frames.shape)}: {what}") from error
        return named_outputs(found, self.name)


def open_pt2(path: str, device: torch.device, *, trust: bool) -> TorchEngine:
    """Loads a file written by ``torch.export.save``.

    Args:
        path: The file.
        device: The device.
        trust: Allows the file to run code of its own while loading; otherwise it is checked first.

    Raises:
        ModelError: The model cannot be loaded, does not take frames, or would run code of its own.
    """
    data = _read(path)
    if not trust:
        check_pt2(path, data)
    with _quietly(path, "torch.export.load"):
        program = torch.export.load(io.BytesIO(data))
        if device.type != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, str(device))
        inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
        wanted = [node for node in inputs if node.name in program.graph_signature.user_inputs]
        module = program.module()
    shapes = [(tuple(node.meta["val"].shape), node.meta["val"].dtype) for node in wanted if "val" in node.meta]
    found = ", ".join(f"{_plain(shape)} {dtype}" for shape, dtype in shapes) or "nothing"
    if len(wanted) != 1 or len(shapes) != 1:
        raise ModelError(path, f"unsupported input {found}; expected one input (N, 3, height, width)")
    return TorchEngine(path, module, check_input(path, found, *shapes[0]))


def open_torchscript(path: str, device: torch.device) -> TorchEngine:
    """Loads a file written by ``torch.jit.save``.

    Raises:
        ModelError: The model cannot be loaded.
    """
    extra = {"config.txt": ""}  # description by Ultralytics' exporter
    with _quietly(path, "torch.jit.load"):
        module = torch.jit.load(path, map_location=device, _extra_files=extra).eval()  # type: ignore[no-untyped-call]
    return TorchEngine(path, module, _signature(module, extra["config.txt"]))


def open_module(path: str, device: torch.device) -> TorchEngine:
    """Unpickles a whole module, which may run any code; ask the user first.

    Raises:
        ModelError: The file does not contain a module.
    """
    with _quietly(path, "torch.load"):
        module = torch.load(path, map_location=device, weights_only=False)
    if not isinstance(module, nn.Module):
        raise ModelError(path, f"contains a {type(module).__name__}, not a module; export the model to .onnx or .pt2")
    return TorchEngine(path, module.eval(), _signature(module, ""))


def _signature(module: Any, config: str | bytes) -> Signature:
    """Returns the signature of a module that does not declare one, from its exporter's description."""
    kinds = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    dtype = torch.float16 if kinds == {torch.float16} else torch.float32
    try:
        said = json.loads(config or "{}")
        size = said.get("imgsz")
        height, width = size if isinstance(size, list) and len(size) == 2 else (None, None)
        names = parse_names(repr({int(number): name for number, name in dict(said.get("names", {})).items()}))
    except (ValueError, TypeError, AttributeError):
        return Signature(dtype=dtype)
    return Signature(None, height, width, dtype, names)


def _plain(shape: tuple[Any, ...]) -> str:
    return "(" + ", ".join(str(side) if isinstance(side, int) else "any" for side in shape) + ")"


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ModelError(path, f"cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def _quietly(path: str, what: str) -> Iterator[None]:
    """Converts a loader's errors to one that names the file, without the loader's advice."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ModelError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise ModelError(path, f"{what} failed: {lines[0] if lines else type(error).__name__}") from error
