"""The prose of the documentation avoids phrases that obscure it."""

from __future__ import annotations

import re

import pytest

from docs.pages import PAGES, ROOT

AVOIDED = {
    "anew": r"\banew\b",
    "whoever": r"\bwhoever\b",
    "somebody": r"\bsomebody\b",
    "nobody has": r"\bnobody has\b",
    "is no ... of": r"\bis no \w+ (?:file|of|that)\b",
    "Told X, it": r"\bTold [^.,]+, it\b",
}

_FENCE = re.compile(r"(?ms)^ *(```+).*?^ *\1 *$")


def _found(text: str) -> list[str]:
    """Returns the avoided phrases of a page, outside code blocks."""
    prose = " ".join(_FENCE.sub("", text).split())
    return [name for name, pattern in AVOIDED.items() if re.search(pattern, prose, re.IGNORECASE)]


@pytest.mark.parametrize("page", PAGES)
def test_page_avoids_obscure_phrases(page: str) -> None:
    assert _found((ROOT / page).read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("sentence", "phrase"),
    [
        ("It writes videos anew.", "anew"),
        ("Whoever closes it gives it up.", "whoever"),
        ("Somebody has no more use for it.", "somebody"),
        ("Ends what nobody\nhas any more.", "nobody has"),
        ("'x' is no number of that kind.", "is no ... of"),
        ("It is no video file.", "is no ... of"),
        ("Told `num_epochs`, it looks into the next epoch as well.", "Told X, it"),
    ],
)
def test_obscure_phrase_is_found(sentence: str, phrase: str) -> None:
    assert _found(sentence) == [phrase]
    assert _found(f"```text\n{sentence}\n```\n") == []
