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
    """Whether it is spelt ``module:name``, with nothing in it that a path has."""
    module, colon, attribute = name.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts)


def import_callable(name: str) -> Any:
    """The function or class that ``module:name`` stands for; a class is called without arguments.

    Raises:
        ModelError: There is none.
    """
    module_name, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ModelError(name, f"the module {module_name} cannot be imported ({error})") from error
    except (Exception, SystemExit) as error:  # whatever is in it is run
        raise ModelError(name, f"the module {module_name} cannot be imported ({_said(error)})") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ModelError(name, f"{module_name} has no {attribute}")
        found = getattr(found, part)
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:
            raise ModelError(name, f"an object of this class cannot be made ({_said(error)})") from error
    if not callable(found):
        raise ModelError(name, f"is a {type(found).__name__} and cannot be called")
    return found


def _said(error: BaseException) -> str:
    """An error of somebody else's code, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def open_callable(call: Callable[[Tensor], Any], name: str, device: torch.device) -> TorchEngine:
    """A callable as an engine. It may say what it takes by attributes ``image_size``, ``dtype`` and ``names``, and by
    ``concurrent = True`` that several threads may call it at a time.

    Raises:
        ModelError: What it says is not possible.
    """
    if isinstance(call, nn.Module):
        call = call.to(device).eval()
    said: Any = call
    dtype = getattr(said, "dtype", None)
    if not isinstance(dtype, torch.dtype):
        kinds = {each.dtype for each in call.parameters()} if isinstance(call, nn.Module) else set()
        dtype = torch.float16 if kinds == {torch.float16} else torch.float32
    if dtype not in DTYPES:
        raise ModelError(name, f"its dtype is {dtype}; possible are torch.float32 and torch.float16")
    size = getattr(said, "image_size", None)
    try:
        height, width = parse_size(size) if size is not None else (None, None)
    except (TypeError, ValueError) as error:
        raise ModelError(name, f"its image_size cannot be used: {error}") from error
    signature = Signature(None, height, width, dtype, tuple(getattr(said, "names", ())))
    return TorchEngine(name, call, signature, concurrent=getattr(said, "concurrent", False) is True)
