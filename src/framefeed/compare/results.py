"""Conclusions from the results of ``framefeed bench``, in words."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from framefeed.charts.svg import number

__all__ = [
    "DEVICES",
    "OURS",
    "Comparison",
    "Row",
    "case_of",
    "comparisons",
    "counted",
    "counts",
    "distinct",
    "grouped",
    "headline",
    "place_of",
    "ratio_of",
    "rows_of",
    "setting_of",
    "spread",
    "state_of",
    "times",
    "wrong_words",
]

OURS = "framefeed"
DEVICES = {"cpu": "on the CPU", "cuda": "on the GPU"}

Row = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Comparison:
    """One case on one video at one batch size on one device: our best row against the best other one.

    Contains only rows that count, see `counts`; a reader tested in both modes is represented by its faster one.

    Attributes:
        case, device: Those of the rows.
        what: The comparison, in words.
        ours, other: The rows.
        passed_over: True if a reader with wrong frames was faster than the best other one, which may then be weak.
    """

    case: str
    device: str
    what: str
    ours: Row
    other: Row
    passed_over: bool = False

    @property
    def ratio(self) -> float:
        """Speed of ours relative to the other."""
        return ratio_of(self.ours, self.other)

    @property
    def close(self) -> bool:
        """True if the repeats of the two overlap, so that another run could rank them the other way."""
        (low, high), (other_low, other_high) = (spread(row) for row in (self.ours, self.other))
        return low <= other_high and other_low <= high


def headline(document: dict[str, Any]) -> list[str]:
    """Summarises the results in sentences of plain text, the most important one first.

    Rows with wrong frames or errors do not count. Ratios are to the fastest other reader of each comparison.
    """
    rows = rows_of(document)
    if not rows:
        return ["Nothing was measured."]
    pairs = comparisons(document)
    sentences: list[str] = []
    remarks: list[str] = []
    for device in distinct(pair.device for pair in pairs):
        where = DEVICES.get(device, device)
        chosen = [pair for pair in pairs if pair.device == device]
        won = sum(pair.ratio >= 1 for pair in chosen)
        mean = statistics.geometric_mean(pair.ratio for pair in chosen)
        among = "every one" if won == len(chosen) else f"{won} of them" if won else "none of them"
        over = f"geometric mean over {counted(len(chosen), 'comparison')}"
        if len(chosen) == 1:
            over, among = "in the only comparison", ""
        sentences.append(
            f"{where[0].upper()}{where[1:]}, {OURS} is "
            f"{times(mean)} as fast as the fastest other reader ({over})"
            + (f", and the fastest in {among}." if among else ".")
        )
        rest = [pair.ratio for pair in chosen if not pair.passed_over]
        if rest and len(rest) < len(chosen):
            passed = counted(len(chosen) - len(rest), "comparison")
            remarks.append(
                f"In {passed} {where} a reader with wrong frames was faster than the one that counts; in the rest "
                f"{OURS} is {times(statistics.geometric_mean(rest))} as fast."
            )
    if sentences:  # the devices' results belong together
        sentences = [" ".join(sentences), *remarks]
    lost = sorted((pair for pair in pairs if pair.ratio < 1), key=lambda pair: pair.ratio)
    if lost:
        named = [f"{pair.what} ({pair.other['reader']} is {times(1 / pair.ratio)} as fast)" for pair in lost[:3]]
        more = f", and {len(lost) - 3} more, listed below" if len(lost) > 3 else ""
        sentences.append(f"{OURS} is not the fastest here: {'; '.join(named)}{more}.")
    if not pairs:
        sentences.append(_without_comparison(document))
    elif alone := len(
        {place_of(row) for row in rows if counts(document, row)} - {place_of(pair.ours) for pair in pairs}
    ):
        sentences.append(
            f"Left out, as {OURS} or all others have no right frames there: {counted(alone, 'comparison')}."
        )
    words_of = {
        "wrong": "Wrong frames, never counted as fast",
        "untested": "Untested, as frames look alike, and not counted",
        "failed": "Failed",
    }
    for state, words in words_of.items():
        found = [row["reader"] for row in rows if state_of(row) == state]
        if found:
            told = ", ".join(f"{name} in {counted(found.count(name), 'measurement')}" for name in distinct(found))
            sentences.append(f"{words}: {told}.")
    return sentences


def _without_comparison(document: dict[str, Any]) -> str:
    good = [row for row in rows_of(document) if counts(document, row)]
    if not good:
        return "No reader returned the right frames, so there is nothing to compare."
    names = distinct(row["reader"] for row in good)
    low, high = (number(pick(row["median"] for row in good)) for pick in (min, max))
    rates = f"between {low} and {high} frames/s in {counted(len(good), 'measurement')}"
    if len(names) == 1:
        return f"{names[0]} delivered {rates}; there was no other reader to compare with."
    return f"{len(names)} readers delivered {rates}; {OURS} has no results beside theirs to compare with."


def ratio_of(ours: Row, other: Row) -> float:
    """Returns the speed of one reader relative to another.

    Timings are taken in turns, so a disturbance of one round affects both: the median of the rounds' ratios is less
    noisy than the ratio of the medians.
    """
    rates, others = ours.get("rates") or [], other.get("rates") or []
    if not rates or len(rates) != len(others):
        return float(ours["median"] / other["median"])
    return float(statistics.median(one / two for one, two in zip(rates, others, strict=True)))


def rows_of(document: dict[str, Any]) -> list[Row]:
    """Returns all rows."""
    return document.get("results") or []


def state_of(row: Row) -> str:
    """Returns the state of a row: right, wrong, failed, unchecked (not compared) or untested (frames look alike)."""
    if row.get("wrong"):
        return "wrong"
    if row.get("error"):
        return "failed"
    if row.get("wrong") is None or not row.get("checked"):
        return "unchecked"
    return "right" if row.get("tested", True) else "untested"


def counts(document: dict[str, Any], row: Row) -> bool:
    """Returns True if a row counts: its frames were right, or unchecked and its reader is known to be exact."""
    exact = {reader["name"] for reader in document.get("readers") or [] if reader.get("exact")}
    state = state_of(row)
    return bool(row.get("median")) and (state == "right" or (state == "unchecked" and row["reader"] in exact))


def comparisons(document: dict[str, Any]) -> list[Comparison]:
    """Compares ours with the others, wherever both count."""
    pairs = []
    for group in grouped(rows_of(document), place_of):
        good = sorted((row for row in group if counts(document, row)), key=lambda row: -row["median"])
        ours = [row for row in good if row["reader"] == OURS]
        others = [row for row in good if row["reader"] != OURS]
        if ours and others:
            row = ours[0]
            sizes = {each["batch_size"] for each in rows_of(document) if each["case"] == row["case"]}
            devices = {each["device"] for each in rows_of(document)}
            what = f"{row['case']} on {row['video']}"
            what += f", {setting_of(row)}" if len(sizes) > 1 else ""
            what += f", {DEVICES.get(row['device'], row['device'])}" if len(devices) > 1 else ""
            wrong = [each for each in group if each["reader"] != OURS and state_of(each) == "wrong"]
            passed_over = any((each.get("median") or 0) > others[0]["median"] for each in wrong)
            pairs.append(Comparison(row["case"], row["device"], what, row, others[0], passed_over))
    return pairs


def place_of(row: Row) -> tuple[Any, ...]:
    """Returns the key that two comparable rows share."""
    return row["case"], row["video"], row["batch_size"], row["device"]


def spread(row: Row) -> tuple[float, float]:
    """Returns the slowest and the fastest timing."""
    low, high = row.get("min"), row.get("max")
    return (row["median"] if low is None else low), (row["median"] if high is None else high)


def setting_of(row: Row) -> str:
    """Describes the batch size, in words."""
    if row["case"] == "single":
        return "one frame at a time"
    return f"{row['batch_size']} frames each" if row["case"] == "clips" else f"batches of {row['batch_size']}"


def wrong_words(row: Row) -> str:
    """Describes the number of wrong frames, in words."""
    return f"wrong: {row.get('wrong') or 0:,} of {row.get('checked') or 0:,}"


def times(ratio: float) -> str:
    """Formats a ratio, in words."""
    return f"{ratio:.2f}x" if ratio < 9.995 else f"{number(ratio)}x"


def counted(count: int, what: str) -> str:
    """Formats a number of things, in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def case_of(row: Row) -> str:
    """Returns the case of a row."""
    return str(row["case"])


def distinct(values: Iterable[T]) -> list[T]:
    """Returns each value once, in order."""
    return list(dict.fromkeys(values))


def grouped(values: Iterable[T], key: Callable[[T], Any]) -> list[list[T]]:
    """Groups values by key, in order of first occurrence."""
    groups: dict[Any, list[T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return list(groups.values())
