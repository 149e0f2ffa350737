"""Parameter sets held by a running decoder, compared with those of one started from the extradata."""

from typing import TypeAlias

Key: TypeAlias = tuple[int, int]
"""NAL unit type and parameter set id."""


class ParameterSets:
    """Parameter sets of a stream in the extradata, and the currently active ones.

    A decoder that starts in the middle knows the extradata and what the first packet carries. So a random-access point
    is one only if no other set was changed in band before it.
    """

    def __init__(self, required: tuple[int, ...]) -> None:
        """Args: required: NAL unit types that decoding needs."""
        self._required = required
        self._base: dict[Key, bytes] = {}
        self._active: dict[Key, bytes] = {}
        self._keys: dict[bytes, Key] = {}
        self._changed: set[Key] = set()
        self._complete = False

    def add_base(self, key: Key, data: bytes) -> None:
        """Adds a parameter set from the extradata."""
        self._base[key] = data
        self._activate(key, data)

    def add(self, key: Key, data: bytes) -> bool:
        """Adds a parameter set from a packet; returns whether it differs from the active one."""
        if self._active.get(key) == data:
            return False
        self._activate(key, data)
        if self._base.get(key) == data:
            self._changed.discard(key)
        else:
            self._changed.add(key)
        return True

    def key_of(self, data: bytes) -> Key | None:
        """Returns the key of an active parameter set with exactly these bytes; None for any other."""
        return self._keys.get(data)

    def _activate(self, key: Key, data: bytes) -> None:
        self._active[key] = data
        self._keys = {active: name for name, active in self._active.items()}
        self._complete = all(any(kind == known[0] for known in self._active) for kind in self._required)

    def complete(self) -> bool:
        """Returns whether at least one set of each required type is known."""
        return self._complete

    def startable(self, carried: set[Key]) -> bool:
        """Returns whether a decoder with the extradata and a packet that carries ``carried`` has the active sets."""
        return self._complete and self._changed <= carried
