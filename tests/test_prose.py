"""Docstrings open with a verb or a noun, and folders stay small enough to read at a glance."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import framefeed

ROOT = Path(framefeed.__file__).parent

OPENING = re.compile(r"(What|Whether|Which|How|Where|Who)\b")
MAX_MODULES = 12

# Files and folders with openings that are still to be rewritten. Only ever remove entries.
OPENINGS_TO_DO = {
    "_util",
    "batch",
    "catalog/catalog_progress.py",
    "catalog/catalog_scan.py",
    "catalog/parts.py",
    "charts",
    "cli",
    "compare",
    "dataset",
    "decode",
    "decoder",
    "device.py",
    "index/bitstream/gaps.py",
    "infer",
    "loader",
    "packets",
    "plan",
    "prepare",
    "readers",
    "request.py",
    "sampling",
    "store/found.py",
    "store/store_journal.py",
    "transforms",
}

# Folders that still have more modules. Only ever remove entries.
FOLDERS_TO_DO = {
    "cli",
    "index/bitstream",
    "infer",
    "prepare",
    "sampling",
}


def _docstrings(path: Path) -> Iterator[str]:
    """The docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    yield str(statement.value.value).strip()


def _entry(file: str) -> str | None:
    """The entry of ``OPENINGS_TO_DO`` that a file belongs to."""
    return next((entry for entry in OPENINGS_TO_DO if file == entry or file.startswith(f"{entry}/")), None)


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    wrong = {
        path.relative_to(ROOT).as_posix(): docstring.splitlines()[0]
        for path in sorted(ROOT.rglob("*.py"))
        for docstring in _docstrings(path)
        if OPENING.match(docstring)
    }
    assert {file: line for file, line in wrong.items() if _entry(file) is None} == {}
    assert OPENINGS_TO_DO - {_entry(file) for file in wrong} == set(), "done: remove them from OPENINGS_TO_DO"


def test_folders_have_few_modules() -> None:
    folders = {path.parent for path in ROOT.rglob("*.py")} - {ROOT}
    large = {
        folder.relative_to(ROOT).as_posix()
        for folder in folders
        if len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) > MAX_MODULES
    }
    assert large - FOLDERS_TO_DO == set()
    assert FOLDERS_TO_DO - large == set(), "done: remove them from FOLDERS_TO_DO"


def test_the_walk_finds_docstrings() -> None:
    assert "Base of all framefeed errors." in {text.splitlines()[0] for text in _docstrings(ROOT / "errors.py")}
