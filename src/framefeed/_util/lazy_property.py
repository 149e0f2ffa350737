"""``cached_property`` without a lock.

Before Python 3.12 the one in ``functools`` takes a lock, for all objects of a class at once. A process that is forked
while another thread holds it waits for ever when it asks for the property of any object.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["cached_property"]

T = TypeVar("T")

if sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(Generic[T]):  # noqa: N801
        """A property that is computed when it is first asked for; twice if two threads ask at the same time."""

        def __init__(self, compute: Callable[[Any], T]) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        @overload
        def __get__(self, instance: None, owner: type | None = None) -> cached_property[T]: ...
        @overload
        def __get__(self, instance: object, owner: type | None = None) -> T: ...
        def __get__(self, instance: object | None, owner: type | None = None) -> cached_property[T] | T:
            if instance is None:
                return self
            # One that is there is found without coming here: what has no __set__ comes after the object's own.
            value: T = instance.__dict__.setdefault(self._name, self._compute(instance))
            return value
