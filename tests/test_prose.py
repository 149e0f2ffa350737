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


def _docstrings(path: Path) -> Iterator[str]:
    """The docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    yield str(statement.value.value).strip()


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    wrong = {
        path.relative_to(ROOT).as_posix(): docstring.splitlines()[0]
        for path in sorted(ROOT.rglob("*.py"))
        for docstring in _docstrings(path)
        if OPENING.match(docstring)
    }
    assert wrong == {}


def test_folders_have_few_modules() -> None:
    folders = {path.parent for path in ROOT.rglob("*.py")} - {ROOT}
    large = {
        folder.relative_to(ROOT).as_posix()
        for folder in folders
        if len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) > MAX_MODULES
    }
    assert large == set()


def test_the_walk_finds_docstrings() -> None:
    assert "Base of all framefeed errors." in {text.splitlines()[0] for text in _docstrings(ROOT / "errors.py")}
