"""Tables of results as Markdown, for the README and the documentation."""

from __future__ import annotations

import statistics
from typing import Any

from framefeed.compare.results import comparisons

__all__ = ["gpu_numbers", "numbers", "readers_numbers", "training_numbers"]

_TITLES = {
    "random": "32 random frames, full-size RGB",
    "many files": "one random frame of each file, two threads",
    "in order": "all frames in order, full-size RGB",
    "resized": "all frames in order, resized to 224x224",
    "scan": "opening MP4 files, one core",
}

_TRAINING_TITLES = {
    "shuffle": "exact shuffle, memory for 10 % of the frames",
    "sequential": "in order",
    "buffered": "mixed through a buffer",
    "clips": "clips of 16 frames, stride 4, exact shuffle, 10 %",
}

# Case, contender, and what the table calls it.
_GPU_ROWS = (
    ("in-order", "decoders alone", "decoding alone, nothing converted"),
    ("in-order", "framefeed", "**in order, full-size RGB**"),
    ("in-order", "framefeed, short epochs", "**the same in epochs of six files**"),
    ("in-order", "SimpleDecoder, 1 thread", "the same by SimpleDecoder"),
    ("in-order", "SimpleDecoder, 6 threads", "the same by six SimpleDecoders"),
    ("in-order", "ThreadedDecoder, 1 thread", "the same by ThreadedDecoder"),
    ("in-order", "ThreadedDecoder, 6 threads", "the same by six ThreadedDecoders"),
    ("in-order", "framefeed, 224x224 half", "**in order, 224x224, half**"),
    ("random", "framefeed, 1 thread", "**64 random frames of a file, full-size RGB**"),
    ("random", "SimpleDecoder, 1 thread", "the same by SimpleDecoder"),
    ("random", "framefeed, 6 threads", "**the same for six files at a time**"),
    ("random", "SimpleDecoder, 6 threads", "the same by six SimpleDecoders"),
    ("shuffle", "framefeed, memory for 50%", "**exact shuffle, memory for 50 % of the frames**"),
    ("shuffle", "framefeed, memory for 25%", "**exact shuffle, memory for 25 % of the frames**"),
    ("shuffle", "framefeed, memory for 25%, epochs known", "**the same, the number of epochs known**"),
    ("shuffle", "framefeed, memory for 10%", "**the same, memory for 10 %**"),
    ("singles", "framefeed, 16 threads", "**single random frames, 16 threads**"),
    ("singles", "framefeed, 32 threads", "**the same, 32 threads**"),
)

_CASE_TITLES = {
    "random": "32 random frames",
    "single": "single random frames",
    "in-order": "in order, 32 at a time",
    "clips": "16 frames from a random place",
    "every": "every 25th frame",
}

_FAMILIES = ("framefeed", "TorchCodec", "decord2", "OpenCV")


def numbers(document: dict[str, Any]) -> str:
    """The numbers as Markdown: one table, each library at its best setting, medians."""
    machine, versions = document["machine"], document["versions"]
    lines = [
        f"{machine['cpus_used']} cores of an {machine['cpu']}, medians; each library at the best of the settings that "
        f"were tried, its frames checked before timing. framefeed {versions['framefeed']}, PyAV {versions['av']}, "
        f"TorchCodec {versions.get('torchcodec')}, decord2 {versions.get('decord2')}, "
        f"OpenCV {versions.get('opencv-python-headless')}.",
        "",
        "| case | on | unit | framefeed | TorchCodec | decord2 | OpenCV | vs fastest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group, title in _TITLES.items():
        chosen = [result for result in document["results"] if result["case"] == group]
        for place, result in enumerate(chosen):
            cells = [_cell(result, family) for family in _FAMILIES]
            ratio = result.get("vs_fastest_peer")
            name = title if place == 0 else ""
            lines.append(f"| {name} | {result['on']} | {result['unit']} | {' | '.join(cells)} | {_times(ratio)} |")
        ratios = [result["vs_fastest_peer"] for result in chosen if "vs_fastest_peer" in result]
        if len(ratios) > 1:
            lines.append(f"| | *geometric mean* | | | | | | **{statistics.geometric_mean(ratios):.2f}x** |")
    return "\n".join(lines)


def training_numbers(document: dict[str, Any]) -> str:
    """The training benchmark's numbers as Markdown."""
    machine, versions = document["machine"], document["versions"]
    lines = [
        f"{machine['cpus_used']} cores of an {machine['cpu']}, float batches of 224x224, 40 H.264 files of 640x360, "
        f"medians; the others in torch's `DataLoader` with two workers. framefeed {versions['framefeed']}, TorchCodec "
        f"{versions.get('torchcodec')}, decord2 {versions.get('decord2')}.",
        "",
        "| frames/s | groups of | framefeed | TorchCodec | decord2 | vs fastest | decoded for each |",
        "|---|---|---|---|---|---|---|",
    ]
    for group, title in _TRAINING_TITLES.items():
        found: dict[str, list[str]] = {}  # by title
        for result in document["results"]:
            if result["case"] != group:
                continue
            rows = {row["reader"]: row for row in result["readers"]}
            peers = [_cell(result, family) for family in _FAMILIES[1:3]]
            fastest = max(row["median"] for name, row in rows.items() if not name.startswith("framefeed"))
            for name, row in rows.items():
                if name == "framefeed" or name.endswith("%"):
                    what = title
                    if name.endswith("%"):
                        what = f"the same, memory for {name.split(', ')[1].replace('%', ' %')}"
                    cells = [f"{row['median']:,.0f}", *peers, _times(row["median"] / fastest)]
                    line = f"{result['on'][3:]} | {' | '.join(cells)} | {row['decoded_per_delivered']:.1f} |"
                    found.setdefault(what, []).append(line)
        for what, of_title in found.items():
            lines += [f"| {what if place == 0 else ''} | {line}" for place, line in enumerate(of_title)]
    return "\n".join(lines)


def gpu_numbers(document: dict[str, Any]) -> str:
    """The GPU benchmark's numbers as Markdown; nothing where there are none yet."""
    sets = {each["name"]: each["title"] for each in document["configuration"]["sets"]}
    found = {
        (result["case"], row["name"], result["on"]): row for result in document["results"] for row in result["entries"]
    }
    lines = []
    for case, name, title in _GPU_ROWS:
        rows = [found.get((case, name, one), {}) for one in sets]
        if any(rows):
            lines.append(f"| {title} | {' | '.join(_gpu_cell(row) for row in rows)} |")
    if not lines:
        return ""
    machine, versions = document["machine"], document["versions"]
    head = [
        f"One {machine['gpu']} with {machine['nvdec_units']} decoding units, six files of each kind, medians; frames "
        "stay in the GPU's memory and are checked before and after timing. In bold framefeed, the rest PyNvVideoCodec "
        f"at the best of the settings that were tried. framefeed {versions['framefeed']}, PyNvVideoCodec "
        f"{versions.get('PyNvVideoCodec')}, torch {versions.get('torch')}.",
        "",
        f"| frames/s | {' | '.join(sets.values())} |",
        f"|---|{'---|' * len(sets)}",
    ]
    return "\n".join(head + lines)


def readers_numbers(document: dict[str, Any]) -> str:
    """The numbers of ``framefeed bench`` as Markdown: for each case the geometric mean over the videos.

    Ratios are those to the fastest of the others. A video does not count for them where that one gave wrong frames
    and framefeed is faster than the rest.
    """
    machine, versions, config = document["machine"], document["versions"], document["configuration"]
    readers = config["readers"]
    names = [f"{name} {versions[name]}" if name in versions else name for name in readers]
    gpu = f"{machine['gpu']['name']}, " if _on_gpu(document) else ""
    lines = [
        f"{gpu}{machine['cpus_used']} cores of an {machine['cpu']}, {len(document['videos'])} clips of "
        f"{document['videos'][0]['width']}x{document['videos'][0]['height']} (H.264, HEVC, VP9; groups of 12 to 250), "
        f"geometric means of medians. {', '.join(names)}.",
        "",
        f"| frames/s | {' | '.join(readers)} | vs fastest | wrong frames |",
        f"|---|{'---|' * len(readers)}---|---|",
    ]
    for case in config["cases"]:
        rows = [row for row in document["results"] if row["case"] == case]
        right = {name: [row["median"] for row in rows if row["reader"] == name and _is_right(row)] for name in readers}
        videos = len({row["video"] for row in rows})
        cells = [_mean(right[name], videos) for name in readers]
        pairs = [pair for pair in comparisons(document) if pair.case == case]
        ratios = [pair.ratio for pair in pairs if pair.ratio < 1 or not pair.passed_over]
        ahead = f"**{statistics.geometric_mean(ratios):.2f}x**" if ratios else "-"
        bad = sorted({row["reader"] for row in rows if row["wrong"]})
        wrong = ", ".join(f"{name} {sum(row['wrong'] or 0 for row in rows if row['reader'] == name)}" for name in bad)
        lines.append(f"| {_CASE_TITLES.get(case, case)} | {' | '.join(cells)} | {ahead} | {wrong or 'none'} |")
    return "\n".join(lines)


def _on_gpu(document: dict[str, Any]) -> bool:
    return any(device != "cpu" for device in document["configuration"]["devices"])


def _is_right(row: dict[str, Any]) -> bool:
    return not row["wrong"] and not row["error"] and row.get("median") is not None


def _mean(rates: list[float], expected: int) -> str:
    """The mean, with a mark where it is not of all videos."""
    if not rates:
        return "-"
    mean = statistics.geometric_mean(rates)
    return (f"{mean:,.0f}" if mean >= 100 else f"{mean:.1f}") + ("*" if len(rates) < expected else "")


def _gpu_cell(row: dict[str, Any]) -> str:
    if "median" in row and not row["wrong"]:
        return f"{row['median']:,.0f}"
    return "wrong frames" if row.get("wrong") else "-"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def _cell(result: dict[str, Any], family: str) -> str:
    rates = [row["median"] for row in result["readers"] if row["reader"].startswith(family) and not row["wrong"]]
    if not rates:
        return "-"
    return f"{max(rates):,.0f}" if max(rates) >= 100 else f"{max(rates):.1f}"
