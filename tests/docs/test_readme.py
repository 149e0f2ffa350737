"""The README: what a newcomer sees first."""

from __future__ import annotations

import re

import pytest

from docs.pages import ROOT, blocks, commands, inline_commands
from docs.shell import command_names

README = (ROOT / "README.md").read_text("utf-8")
LINKS = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)


def test_every_python_block_has_its_output() -> None:
    found = [block for block in blocks("README.md") if block.language == "python"]
    assert found and all(block.output for block in found)


def test_every_command_is_shown() -> None:
    shown = [*inline_commands("README.md")]
    for block in blocks("README.md"):
        if block.language == "console":
            shown += commands(block)
    assert {words[1] for words in shown if words[0] == "framefeed"} == command_names()


@pytest.mark.parametrize("link", sorted(set(LINKS)))
def test_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_numbers_have_their_place() -> None:
    named = re.findall(r"<!-- table: (\S+) -->\n.+?\n<!-- /table -->", README, re.DOTALL)
    assert named == ["training-2-cores", "gpu-h200", "readers-2-cores", "readers-h200", "cpu-2-cores"]
