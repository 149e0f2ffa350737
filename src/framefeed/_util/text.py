"""Text from outside, such as file names, made safe for terminals and for tables that spreadsheets open."""

from __future__ import annotations

import re
import unicodedata
from typing import TextIO

__all__ = ["csv_cell", "encodable", "printable", "text_of_cell"]

# Control characters, invisible and direction-changing ones, halves of surrogate pairs, line and paragraph separators.
_ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")

_RISKY = "=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20"  # the last four are the wide forms of the first four
_FORMULA = re.compile(f"'*[{_RISKY}]")
_QUOTED = re.compile(f"'+[{_RISKY}]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def printable(text: str, *, keep: str = "") -> str:
    r"""Escapes what a terminal would act upon or hide, as ``\x1b``; characters in ``keep`` stay."""
    if text.isprintable():
        return text
    return "".join(
        each if each in keep or unicodedata.category(each) not in _ESCAPED else _escape(ord(each)) for each in text
    )


def encodable(text: str, stream: TextIO | None) -> str:
    """Escapes what ``printable`` escapes, and what a stream's encoding does not have."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return printable(text).encode(encoding, "backslashreplace").decode(encoding)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def csv_cell(text: str) -> str:
    """Puts an apostrophe before text that a spreadsheet would take for a formula; text that is a number stays.

    Formulas begin with ``=``, ``+``, ``-``, ``@``, a tab or an end of line. ``text_of_cell`` is the way back.
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def text_of_cell(cell: str) -> str:
    """Gives back the text that ``csv_cell`` was given."""
    return cell[1:] if _QUOTED.match(cell) else cell
