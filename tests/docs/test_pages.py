"""Every page does what it says: its code runs and prints what is shown, its commands exist, and the cheap ones run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from docs import shell
from docs.pages import PAGES, ROOT, SHELLS, Block, blocks, commands, inline_commands
from framefeed.prepare import api
from framefeed.prepare.gop import gop_clips
from prepare.helpers import in_this_process

BLOCKS = [block for page in PAGES for block in blocks(page)]
TO_RUN = {
    page: [block for block in BLOCKS if block.page == page and block.is_code and not block.not_run] for page in PAGES
}

# Blocks that cannot be run here, by page and reason. A new one is put in here on purpose.
NOT_RUN = {
    ("CONTRIBUTING.md", "needs a GPU"): 1,
    ("CONTRIBUTING.md", "takes minutes"): 1,
    ("docs/cameras.md", "takes a minute"): 1,
    ("docs/comparing.md", "takes minutes"): 2,
    ("docs/gpu.md", "needs a GPU"): 1,
    ("docs/moving/accvlab.md", "ACCV-Lab"): 1,
    ("docs/moving/accvlab.md", "takes minutes"): 1,
    ("docs/moving/dali.md", "DALI"): 1,
    ("docs/moving/decord.md", "decord"): 2,
    ("docs/moving/nvvl.md", "NVVL"): 1,
    ("docs/moving/torchcodec.md", "TorchCodec"): 2,
    ("docs/performance.md", "takes minutes"): 1,
    ("docs/training.md", "several processes"): 1,
}

LANGUAGES = {"python", "text", "json", "diff", "toml", "make", *SHELLS}


# What readers are warned of, on purpose or by others.
WARNINGS = {"docs/ray.md": "ignore", "docs/training.md": "ignore:left out 1 of 5 files:UserWarning"}

# Libraries that do not go with every Python: Kornia needs 3.11.
NEEDED = {"docs/augmentation.md": "kornia"}


def _param(page: str) -> Any:
    return pytest.param(page, marks=[pytest.mark.filterwarnings(WARNINGS[page])] if page in WARNINGS else [])


@pytest.mark.parametrize("page", [_param(page) for page, found in TO_RUN.items() if found])
def test_page(page: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if page in NEEDED:
        pytest.importorskip(NEEDED[page])
    # That videos are prepared in processes of their own, tests/prepare shows; starting them takes longer than the page.
    for module in (api, gop_clips):
        monkeypatch.setattr(module, "prepare_all", in_this_process)
    namespace: dict[str, object] = {"__name__": "page"}
    for block in TO_RUN[page]:
        capsys.readouterr()
        if block.language == "python":
            exec(compile(block.code, str(ROOT / block.where), "exec"), namespace)
            if block.output is not None:
                assert capsys.readouterr().out == block.output, block.where
        else:
            for words in commands(block):
                shell.check(words)
                shell.run(words)
            if block.output is not None:
                assert _squeezed(capsys.readouterr().out) == _squeezed(block.output), block.where
    namespace.clear()  # functions of a page refer to it: loaders would end in the middle of some other page


def _squeezed(text: str) -> list[list[str]]:
    """Lines as words: how wide a table is depends on the terminal."""
    return [line.split() for line in text.splitlines() if line.strip(" ─")]


def test_blocks_that_are_not_run_are_known() -> None:
    assert Counter((block.page, block.not_run) for block in BLOCKS if block.not_run) == NOT_RUN


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.not_run], ids=lambda block: block.where)
def test_what_is_not_run_can_be_read(block: Block) -> None:
    if block.language == "python":
        compile(block.code, str(ROOT / block.where), "exec")
    elif block.language in SHELLS:
        for words in commands(block):
            shell.check(words)


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences(page: str) -> None:
    for words in inline_commands(page):
        shell.check(words)


def test_every_block_says_what_it_is() -> None:
    assert [(block.where, block.language) for block in BLOCKS if block.language not in LANGUAGES] == []


@pytest.mark.parametrize(
    "command",
    [
        "framefeed index videos --no-such-option",
        "framefeed nothing",
        "make nothing",
        "python -m benchmarks.decoder --no-such-option",
        "python examples/clips/main.py --no-such-option",
        "python examples/nothing.py",
        "pip install .[nothing]",
        "pip install -c nothing.txt .",
        "unheard-of --option",
    ],
)
def test_wrong_commands_are_noticed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((AssertionError, SystemExit)):
        shell.check(command.split())
