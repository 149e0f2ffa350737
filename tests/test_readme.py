"""The README tells the truth: examples print what it shows, commands exist, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from framefeed.cli import build_parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")

_EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n+```text\n(?P<output>.*?)```", re.DOTALL)
EXAMPLES = [(found["code"], found["output"]) for found in _EXAMPLE.finditer(README)]

# A line of a console block, or a piece of code in the text.
COMMANDS = sorted({found[1] for found in re.finditer(r"(?m)(?:^|`)(framefeed [^`\n]+)", README)})
LINKS = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)


def test_every_python_block_has_its_output() -> None:
    assert len(EXAMPLES) == README.count("```python") > 0


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_example_prints_what_is_shown(tmp_path: Path, code: str, output: str) -> None:
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stderr, ran.stdout) == ("", output)


def _is_whole(command: str) -> bool:
    return len(shlex.split(command)) > 2  # `framefeed verify` alone is a name in a sentence


@pytest.mark.parametrize("command", [command for command in COMMANDS if _is_whole(command)])
def test_command_can_be_parsed(command: str) -> None:
    build_parser().parse_args(shlex.split(command)[1:])


def test_every_command_is_shown() -> None:
    shown = {shlex.split(command)[1] for command in COMMANDS}
    assert shown == {"index", "pack", "info", "frames", "verify", "demo", "doctor", "readers", "bench"}


@pytest.mark.parametrize("target", re.findall(r"(?m)^make ([a-z]+)$", README))
def test_make_target_exists(target: str) -> None:
    assert re.search(rf"(?m)^{target}:", (ROOT / "Makefile").read_text("utf-8"))


@pytest.mark.parametrize("link", LINKS)
def test_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_numbers_have_their_place() -> None:
    assert re.search(r"<!-- numbers -->\n.+\n<!-- /numbers -->", README, re.DOTALL)
