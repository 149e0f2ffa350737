"""Validation and storage of a loader's position."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from framefeed._util.atomic_write import write
from framefeed.errors import StateError

__all__ = ["check_state", "read_state", "write_state"]

VERSION = 1

# Fields that must match when a state is loaded, and their descriptions in errors.
_SAME = {
    "seed": "seed",
    "order": "order, sampler or batch sampler",
    "batch_size": "batch size",
    "drop_last": "drop_last",
    "num_samples": "number of samples",
    "dataset": "files, file lengths or file order",
}


def check_state(state: Any, own: dict[str, Any]) -> None:
    """Checks that a state is valid and belongs to this loader.

    Args:
        state: The state.
        own: This loader's own state.
    """
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise StateError("state", f"is not a loader state of version {VERSION}")
    for key in ("epoch", "batch", "world"):
        value = state.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
            raise StateError("state", f"is damaged: {key} is {value!r}")
    if not isinstance(state.get("finished"), bool) or not _is_sampler_state(state.get("sampler")):
        raise StateError("state", "is damaged: it has no position in the epoch")
    different = [text for key, text in _SAME.items() if state.get(key) != own[key]]
    if different:
        raise StateError("state", f"belongs to another loader: different {', '.join(different)}")
    if state["batch"] and not state["finished"] and state["world"] != own["world"]:
        raise StateError(
            "state",
            f"was saved in mid-epoch with {state['world']} ranks, not {own['world']}; the number of ranks can only "
            "change between epochs",
        )


def _is_sampler_state(state: Any) -> bool:
    if not isinstance(state, dict):
        return False
    generator = state.get("generator", [])
    return isinstance(generator, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in generator)


def write_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Writes a state atomically: the file always has either the old or the new state.

    Raises:
        StateError: The file cannot be written; an existing file is unchanged.
    """
    target = Path(path)
    try:
        write(target, json.dumps({"state": state, "crc32": _checksum(state)}), sync=True)
    except OSError as error:
        raise StateError(target, f"cannot save the loader state: {error.strerror or error}") from error


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a state written by ``write_state``, or a plain ``state_dict()`` saved as JSON."""
    try:
        state = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise StateError(path, f"cannot read the loader state: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StateError(path, f"is not a loader state: {error}") from error
    if isinstance(state, dict) and "crc32" in state:
        found = state.get("state")
        if state["crc32"] != _checksum(found):
            raise StateError(path, "is damaged: its checksum does not match")
        state = found
    if not isinstance(state, dict):
        raise StateError(path, "is not a loader state")
    return state


def _checksum(state: Any) -> int:
    return zlib.crc32(json.dumps(state, sort_keys=True).encode())
