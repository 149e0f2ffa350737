"""Pages as what they ask their reader to do: blocks of code and commands, in order."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "SHELLS", "Block", "blocks", "commands", "inline_commands"]

ROOT = Path(__file__).parents[2]

# What a page is about; the site takes all of these.
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    )
)

SHELLS = ("bash", "console", "sh")

_FENCE = re.compile(r"(?ms)^(?P<indent> *)(?P<mark>```+)(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)(?P=mark) *$")
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: Relative to the repository.
        line: Where it begins, counted from 1.
        language: As ``python``; empty where none is given.
        code: What is in it.
        not_run: Why it cannot be run here, from a comment in front of it; empty for all others.
        output: What the page shows as its output, in a block of text right behind it; None where there is none.
    """

    page: str
    line: int
    language: str
    code: str
    not_run: str = ""
    output: str | None = None

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_code(self) -> bool:
        return self.language in ("python", *SHELLS)


def blocks(page: str) -> list[Block]:
    """All blocks of a page."""
    text = (ROOT / page).read_text("utf-8")
    found = list(_FENCE.finditer(text))
    made = []
    for number, fence in enumerate(found):
        reason = _NOT_RUN.search(text[: fence.start()])
        follower = found[number + 1] if number + 1 < len(found) else None
        output = None
        if follower is not None and follower["info"] == "text" and not text[fence.end() : follower.start()].strip():
            output = _body(follower)
        made.append(
            Block(
                page,
                text.count("\n", 0, fence.start()) + 1,
                fence["info"].split(" ")[0],
                _body(fence),
                reason[1] if reason else "",
                output,
            )
        )
    return made


def _body(fence: re.Match[str]) -> str:
    return textwrap.dedent(fence["body"]) if fence["indent"] else fence["body"]


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command of a block, without a prompt and comments."""
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words:
            yield words


def inline_commands(page: str) -> list[list[str]]:
    """Commands of framefeed with arguments that stand within sentences and tables, and make no claim to be run."""
    text = _FENCE.sub("", (ROOT / page).read_text("utf-8"))
    spans = re.findall(r"(?<!`)`((?:framefeed |make |python -m framefeed|python examples/)[^`]*)`(?!`)", text)
    return [shlex.split(span) for span in spans]
