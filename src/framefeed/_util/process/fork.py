"""Calls in forked children, before anything else runs there."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

__all__ = ["in_forked_children"]

_methods: list[weakref.WeakMethod[Callable[[], None]]] = []


def in_forked_children(method: Callable[[], None]) -> None:
    """Has a method called in each forked child, as long as its object lives.

    What ``os.register_at_fork`` is given stays for ever, with everything that it refers to.
    """
    _methods[:] = [each for each in _methods if each() is not None]
    _methods.append(weakref.WeakMethod(method))


def _call() -> None:
    for each in list(_methods):
        method = each()
        if method is not None:
            method()


os.register_at_fork(after_in_child=_call)
