"""Records of runs, as JSON: a later call resumes a run, and is refused where it asks for something else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from framefeed._util.atomic_write import write

__all__ = ["RESUME", "as_json", "cannot_write", "changes", "read_record", "write_record"]

VERSION = 1
SHOWN = 3
MAX_SHOWN = 60  # characters of a value

RESUME = "finished work is kept, rerun the same command to resume"

AnyPath = str | os.PathLike[str]


def as_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options as they are when they have been written and read."""
    found: dict[str, Any] = json.loads(json.dumps(options))
    return found


def read_record(path: AnyPath) -> dict[str, Any] | None:
    """Reads a record that ``write_record`` wrote; None for a missing one.

    Raises:
        ValueError: It cannot be read, is of another version, or has no options.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be read ({error})") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ValueError("is of another version")
    if not isinstance(found.get("options"), dict):
        raise ValueError("is damaged (it has no options)")
    return found


def write_record(path: AnyPath, options: Mapping[str, Any], content: Mapping[str, Any], *, folder: AnyPath) -> None:
    """Writes a record; it is on the disk when this returns. ``folder`` is for the unfinished file."""
    text = json.dumps({"version": VERSION, "options": options, **content}, indent=1)
    write(path, f"{text}\n", sync=True, folder=folder)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describes the first values that differ, as ``gop 30 -> 60``; empty where all are equal."""
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    shown = [f"{name} {_short(before.get(name))} -> {_short(now.get(name))}" for name in changed[:SHOWN]]
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return "; ".join(shown) + more


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def cannot_write(error: OSError | str) -> str:
    """Returns the reason to give for a full disk and the like."""
    why = error if isinstance(error, str) else error.strerror or error
    return f"cannot be written ({why}); {RESUME}"
