"""A loader's place in its epoch, on its way to a file and back."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from framefeed.errors import StateError

__all__ = ["check_state", "read_state", "write_state"]

VERSION = 1

# What has to be the same for a state to fit; the texts say what each is.
_SAME = {
    "seed": "seed",
    "order": "order or sampler",
    "batch_size": "batch size",
    "drop_last": "drop_last",
    "num_samples": "number of samples",
    "dataset": "files, their lengths or their order",
}


def check_state(state: dict[str, Any], own: dict[str, Any]) -> None:
    """Raises where a state belongs to another loader.

    Args:
        state: The state.
        own: What this loader's own state says.
    """
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise StateError("state", f"is no loader state of version {VERSION}")
    different = [text for key, text in _SAME.items() if state.get(key) != own[key]]
    if different:
        raise StateError("state", f"belongs to another loader: different {', '.join(different)}")
    if state["batch"] and not state["finished"] and state["world"] != own["world"]:
        raise StateError(
            "state",
            f"was saved in the middle of an epoch by {state['world']} ranks, here are {own['world']}; the number of "
            "ranks can change between epochs only",
        )


def write_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Writes a state; the file has the old state or the new one at any time, whatever happens.

    Raises:
        StateError: The file cannot be written; one that was there before is untouched.
    """
    target = Path(path)
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise StateError(target, f"the loader's state cannot be saved: {error.strerror or error}") from error


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a state that ``write_state`` wrote."""
    try:
        state = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise StateError(path, f"the loader's state cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise StateError(path, f"is no loader state: {error}") from error
    if not isinstance(state, dict):
        raise StateError(path, "is no loader state")
    return state
