"""Python callables as models."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from framefeed.errors import ModelError
from framefeed.infer.detection.fit import parse_size
from framefeed.infer.engines.base import DTYPES, Signature
from framefeed.infer.engines.torch_program import TorchEngine

__all__ = ["import_callable", "is_callable_name", "open_callable"]


def is_callable_name(name: str) -> bool:
    """Returns True for ``module:name``, without characters of a path."""
    module, colon, attribute = name.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts)


def import_callable(name: str) -> Any:
    """Imports the function or class named ``module:name``; a class is called without arguments.

    Raises:
        ModelError: It does not exist or fails.
    """
    module_name, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ModelError(name, f"cannot import module {module_name} ({error})") from error
    except (Exception, SystemExit) as error:  # importing runs arbitrary code
        raise ModelError(name, f"cannot import module {module_name} ({_said(error)})") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ModelError(name, f"{module_name} has no {attribute}")
        found = getattr(found, part)
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:
            raise ModelError(name, f"cannot create an object of this class ({_said(error)})") from error
    if not callable(found):
        raise ModelError(name, f"is a {type(found).__name__}, which cannot be called")
    return found


def _said(error: BaseException) -> str:
    """Formats an error of user code in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def open_callable(call: Callable[[Tensor], Any], name: str, device: torch.device) -> TorchEngine:
    """Wraps a callable. It may declare its input by the attributes ``image_size``, ``dtype`` and ``names``, and thread
    safety by ``concurrent = True``.

    Raises:
        ModelError: An attribute is invalid.
    """
    if isinstance(call, nn.Module):
        call = call.to(device).eval()
    said: Any = call
    dtype = getattr(said, "dtype", None)
    if not isinstance(dtype, torch.dtype):
        kinds = {each.dtype for each in call.parameters()} if isinstance(call, nn.Module) else set()
        dtype = torch.float16 if kinds == {torch.float16} else torch.float32
    if dtype not in DTYPES:
        raise ModelError(name, f"dtype must be torch.float32 or torch.float16, got {dtype}")
    size = getattr(said, "image_size", None)
    try:
        height, width = parse_size(size) if size is not None else (None, None)
    except (TypeError, ValueError) as error:
        raise ModelError(name, f"invalid image_size: {error}") from error
    signature = Signature(None, height, width, dtype, tuple(getattr(said, "names", ())))
    return TorchEngine(name, call, signature, concurrent=getattr(said, "concurrent", False) is True)
