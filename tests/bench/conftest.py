"""Processes of benchmarks are forked from one that has loaded torch: starting each from nothing takes seconds."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

LOADED = [
    "torch",
    "av",
    "framefeed.decoder",
    "framefeed.readers",
    "framefeed.decode.cpu.session_cpu",
    "framefeed.testing.scenes",
]

_get_context = multiprocessing.get_context


def _context(method: str | None = None) -> Any:
    if method != "spawn":
        return _get_context(method)
    context = _get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    return context


@pytest.fixture(autouse=True, scope="module")
def quick_processes() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", _context)
        yield
