"""Which parameter sets a decoder holds, compared with those it would hold when it started from the extradata."""

from typing import TypeAlias

Key: TypeAlias = tuple[int, int]
"""NAL unit type and parameter set id."""


class ParameterSets:
    """Parameter sets of a stream as they stand in the extradata and as they stand now.

    A decoder that starts in the middle knows the extradata and what the first packet carries. A random-access
    point is therefore only one when nothing else was changed in band before it.
    """

    def __init__(self, required: tuple[int, ...]) -> None:
        """Args: required: NAL unit types without which nothing can be decoded."""
        self._required = required
        self._base: dict[Key, bytes] = {}
        self._active: dict[Key, bytes] = {}
        self._keys: dict[bytes, Key] = {}
        self._changed: set[Key] = set()
        self._complete = False

    def add_base(self, key: Key, data: bytes) -> None:
        """Take a parameter set from the extradata."""
        self._base[key] = data
        self._activate(key, data)

    def add(self, key: Key, data: bytes) -> bool:
        """Take a parameter set from a packet; whether it differs from the active one."""
        if self._active.get(key) == data:
            return False
        self._activate(key, data)
        if self._base.get(key) == data:
            self._changed.discard(key)
        else:
            self._changed.add(key)
        return True

    def key_of(self, data: bytes) -> Key | None:
        """The name of a parameter set that is active as it stands here; None for any other."""
        return self._keys.get(data)

    def _activate(self, key: Key, data: bytes) -> None:
        self._active[key] = data
        self._keys = {active: name for name, active in self._active.items()}
        self._complete = all(any(kind == known[0] for known in self._active) for kind in self._required)

    def complete(self) -> bool:
        """Whether at least one set of each required type is known."""
        return self._complete

    def startable(self, carried: set[Key]) -> bool:
        """Whether a decoder with the extradata and a packet that carries ``carried`` holds the active sets."""
        return self._complete and self._changed <= carried
