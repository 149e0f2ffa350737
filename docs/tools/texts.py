"""``python docs/tools/texts.py``: writes tables from benchmarks/results into the pages that have a place for them.

A place is ``<!-- table: training-2-cores -->``, with ``<!-- /table -->`` behind it; ``exercise-2-cores:study`` is one
of several tables of a file. Each says whether it was measured with the code that is here, as does each line of the list
in ``benchmarks/README.md``. A test compares. Help of commands is not kept in pages: ``<!-- help: index -->`` is filled
in while the site is built.
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
    """The numbers of a benchmark."""
    document: Document = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return document


def pages() -> list[Path]:
    """The pages that can have tables."""
    return [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(DOCS.glob("*.md"))]


def table(name: str, folder: Path = DOCS) -> str:
    """A table for pages of a folder, where it comes from, how old it is; a sentence where there is none yet."""
    file = RESULTS / f"{name.partition(':')[0]}.json"
    if not file.exists():
        return NOT_MEASURED
    document = load(file.stem)
    made_by = document["command"].partition(" --")[0]
    link = Path(os.path.relpath(file, folder)).as_posix()
    return f"{TABLES[name](document)}\n\nFrom [{file.name}]({link}), made by `{made_by}`. {age(document)}"


def filled(text: str, folder: Path = DOCS) -> str:
    """A page of a folder with all its tables as they should be."""
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
