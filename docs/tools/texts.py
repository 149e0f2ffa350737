"""``python docs/tools/texts.py``: writes tables from benchmarks/results between the markers of the pages.

``<!-- table: training-2-cores -->`` and ``<!-- /table -->`` enclose a table; ``exercise-2-cores:study`` names one of
several tables of a file. Each table states whether it was measured with the present code, as does each row of
``benchmarks/README.md``. A test compares pages and results. Pages do not store the help of commands: the site build
fills in ``<!-- help: index -->``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.tables import TABLES
from framefeed.cli import build_parser
from framefeed.compare.provenance import age

__all__ = ["filled", "help_text", "load", "main", "pages", "table"]

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
RESULTS = ROOT / "benchmarks" / "results"
HELP_COLUMNS = "80"
NOT_MEASURED = "*Not measured yet.*"

Document = dict[str, Any]


def load(name: str) -> Document:
    """Reads the results of a benchmark."""
    document: Document = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return document


def pages() -> list[Path]:
    """Returns the pages that can have tables."""
    return [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(DOCS.glob("*.md"))]


def table(name: str, folder: Path = DOCS) -> str:
    """Returns a table for pages of a folder, with its source and its age, or a sentence if it has no results yet."""
    file = RESULTS / f"{name.partition(':')[0]}.json"
    if not file.exists():
        return NOT_MEASURED
    document = load(file.stem)
    link = Path(os.path.relpath(file, folder)).as_posix()
    return f"{TABLES[name](document)}\n\nFrom [{file.name}]({link}), which records the command. {age(document)}"


def filled(text: str, folder: Path = DOCS) -> str:
    """Fills in all tables of a page."""
    text = _PLACE.sub(lambda found: f"{found[1]}\n\n{table(found[2], folder)}\n\n{found[3]}", text)
    return _LISTED.sub(lambda found: f"{found[1]} {_age(found[2])} |", text)


def _age(name: str) -> str:
    return age(load(name)) if (RESULTS / f"{name}.json").exists() else NOT_MEASURED


_PLACE = re.compile(r"(?s)(<!-- table: (\S+) -->)\n.*?(<!-- /table -->)")
_LISTED = re.compile(r"(?m)^(\| `(\S+)\.json` \| .* \|) .* \|$")


def help_text(command: str) -> str:
    """Returns the output of ``framefeed COMMAND --help``."""
    parser = build_parser()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            with mock.patch.dict(os.environ, COLUMNS=HELP_COLUMNS):
                return f"```text\n{action.choices[command].format_help()}```"
    raise KeyError(command)


def main() -> int:
    """Writes all tables."""
    for page in pages():
        text = page.read_text("utf-8")
        if (new := filled(text, page.parent)) != text:
            page.write_text(new, "utf-8")
            print(page.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
