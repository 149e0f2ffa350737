"""Records of runs: what is written is read, what is damaged or differs is told."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from framefeed._util.run_state import as_json, cannot_write, changes, read_record, write_record

OPTIONS = {"gop": 30, "size": (4, 6), "classes": None}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert read_record(path) is None
    write_record(path, OPTIONS, {"videos": ["a"]}, folder=tmp_path)
    found = read_record(path)
    assert found is not None and found["videos"] == ["a"] and found["options"] == as_json(OPTIONS)
    assert changes(found["options"], as_json(OPTIONS)) == ""
    assert os.listdir(tmp_path) == ["run.json"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 50_000, "cannot be read"),
        (b"[]", "of another version"),
        (json.dumps({"version": 2, "options": {}}).encode(), "of another version"),
        (json.dumps({"version": 1, "options": []}).encode(), "is damaged"),
        (json.dumps({"version": 1}).encode(), "is damaged"),
    ],
)
def test_records_that_cannot_be_used(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        read_record(tmp_path / "run.json")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"gop": 30}, {"gop": 60}, "gop 30 -> 60"),
        ({"a": 1}, {"b": "x"}, 'a 1 -> null; b null -> "x"'),
        (dict.fromkeys("abcde", 1), {}, "a 1 -> null; b 1 -> null; c 1 -> null and 2 more"),
        ({"a": None}, {}, ""),
    ],
)
def test_changes(before: dict[str, Any], now: dict[str, Any], expected: str) -> None:
    assert changes(before, now) == expected


def test_long_values_are_cut() -> None:
    (before, now) = changes({"a": "x" * 100}, {"a": "y"}).removeprefix("a ").split(" -> ")
    assert (len(before), before[-3:], now) == (60, "...", '"y"')


def test_reasons() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    kept = "finished work is kept, rerun the same command to resume"
    assert cannot_write(full) == f"cannot be written (No space left on device); {kept}"
