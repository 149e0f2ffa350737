"""Tables of results as Markdown, for the README and the documentation."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from framefeed.compare.exercise.exercise_page import exercise_table, study_table
from framefeed.compare.results import comparisons

__all__ = ["TABLES", "gpu_numbers", "inference_numbers", "numbers", "readers_numbers", "training_numbers"]

Document = dict[str, Any]

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


def _machine(document: Document) -> str:
    return f"{document['machine']['cpus_used']} cores of an {document['machine']['cpu']}"


def _page(about: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A sentence, and a table as Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([about, "", lines[0], "|" + "---|" * len(head), *lines[1:]])


def numbers(document: Document) -> str:
    """The numbers as Markdown: one table, each library at its best setting, medians."""
    versions = document["versions"]
    rows = []
    for group, title in _TITLES.items():
        chosen = [result for result in document["results"] if result["case"] == group]
        for place, result in enumerate(chosen):
            cells = [_cell(result, family) for family in _FAMILIES]
            ratio = _times(result.get("vs_fastest_peer"))
            rows.append(["" if place else title, result["on"], result["unit"], *cells, ratio])
        ratios = [result["vs_fastest_peer"] for result in chosen if "vs_fastest_peer" in result]
        if len(ratios) > 1:
            mean = f"**{statistics.geometric_mean(ratios):.2f}x**"
            rows.append(["", "*geometric mean*", *[""] * 5, mean])
    about = (
        f"{_machine(document)}, medians; each library at the best of the settings that "
        f"were tried, its frames checked before timing. framefeed {versions['framefeed']}, PyAV {versions['av']}, "
        f"TorchCodec {versions.get('torchcodec')}, decord2 {versions.get('decord2')}, "
        f"OpenCV {versions.get('opencv-python-headless')}."
    )
    return _page(about, ["case", "on", "unit", *_FAMILIES, "vs fastest"], rows)


def training_numbers(document: Document) -> str:
    """The training benchmark's numbers as Markdown."""
    versions = document["versions"]
    lines = []
    for group, title in _TRAINING_TITLES.items():
        found: dict[str, list[list[str]]] = {}  # by title
        for result in document["results"]:
            if result["case"] != group:
                continue
            rows = {row["reader"]: row for row in result["readers"]}
            peers = [_cell(result, family) for family in _FAMILIES[1:3]]
            fastest = max(row["median"] for name, row in rows.items() if not name.startswith("framefeed"))
            for name, row in rows.items():
                if name == "framefeed" or name.endswith("%"):
                    share = name.partition(", ")[2].replace("%", " %")
                    cells = [f"{row['median']:,.0f}", *peers, _times(row["median"] / fastest)]
                    line = [result["on"][3:], *cells, f"{row['decoded_per_delivered']:.1f}"]
                    found.setdefault(f"the same, memory for {share}" if share else title, []).append(line)
        for name, of_title in found.items():
            lines += [["" if place else name, *line] for place, line in enumerate(of_title)]
    about = (
        f"{_machine(document)}, float batches of 224x224, 40 H.264 files of 640x360, "
        f"medians; the others in torch's `DataLoader` with two workers. framefeed {versions['framefeed']}, TorchCodec "
        f"{versions.get('torchcodec')}, decord2 {versions.get('decord2')}."
    )
    head = ["frames/s", "GOP", *_FAMILIES[:3], "vs fastest", "decoded per delivered"]
    return _page(about, head, lines)


def gpu_numbers(document: Document) -> str:
    """The GPU benchmark's numbers as Markdown; nothing where there are none yet."""
    sets = {each["name"]: each["title"] for each in document["configuration"]["sets"]}
    found = {
        (result["case"], row["name"], result["on"]): row for result in document["results"] for row in result["entries"]
    }
    lines = []
    for case, name, title in _GPU_ROWS:
        rows = [found.get((case, name, one), {}) for one in sets]
        if any(rows):
            lines.append([title, *map(_gpu_cell, rows)])
    if not lines:
        return ""
    machine, versions = document["machine"], document["versions"]
    about = (
        f"One {machine['gpu']} with {machine['nvdec_units']} decoding units, six files of each kind, medians; frames "
        "stay in the GPU's memory and are checked before and after timing. In bold framefeed, the rest PyNvVideoCodec "
        f"at the best of the settings that were tried. framefeed {versions['framefeed']}, PyNvVideoCodec "
        f"{versions.get('PyNvVideoCodec')}, torch {versions.get('torch')}."
    )
    return _page(about, ["frames/s", *sets.values()], lines)


def readers_numbers(document: Document) -> str:
    """The numbers of ``framefeed bench`` as Markdown: for each case the geometric mean over the videos.

    Ratios are those to the fastest of the others. A video does not count for them where that one gave wrong frames
    and framefeed is faster than the rest.
    """
    machine, versions, config = document["machine"], document["versions"], document["configuration"]
    readers = config["readers"]
    names = [f"{name} {versions[name]}" if name in versions else name for name in readers]
    gpu = f"{machine['gpu']['name']}, " if _on_gpu(document) else ""
    about = (
        f"{gpu}{_machine(document)}, {len(document['videos'])} clips of "
        f"{document['videos'][0]['width']}x{document['videos'][0]['height']} (H.264, HEVC, VP9; GOP 12 to 250), "
        f"geometric means of medians. {', '.join(names)}."
    )
    lines = []
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
        lines.append([_CASE_TITLES.get(case, case), *cells, ahead, wrong or "none"])
    return _page(about, ["frames/s", *readers, "vs fastest", "wrong frames"], lines)


def inference_numbers(document: Document) -> str:
    """The numbers of batch inference as Markdown."""
    config, versions = document["configuration"], document["versions"]
    where = _machine(document)
    if config["device"] != "cpu":
        where = f"{document['machine'].get('gpu', config['device'])}, {where}"
    about = (
        f"{where}; batches of {config['batch_size']}, medians of frames a second; all boxes checked "
        f"before timing. framefeed {versions.get('framefeed')}, torch {versions.get('torch')}."
    )
    rows = []
    for result in document["results"]:
        rates = result["medians"]
        cells = [_rate(rate) for rate in (rates["decode"], rates["model"], result["bound"], rates["whole"])]
        plain = f"{rates['one after the other']:,.1f}"
        ratios = f"{result['of_bound']:.2f}", plain, f"**{result['vs_one_after_the_other']:.2f}x**"
        rows.append([result["on"], *cells, *ratios])
    head = ["", "decoding alone", "model alone", "bound", "whole", "of the bound", "plain script", "whole vs plain"]
    return _page(about, head, rows)


def _budgets(document: Document) -> str:
    found = {result["on"]: {row["reader"]: row for row in result["readers"]} for result in document["results"]}
    shares = list(next(iter(found.values())))
    rows = []
    for name, readers in found.items():
        group = name.partition(",")[0].removeprefix("gop")
        rows.append([f"GOP {group}", *(f"{readers[share]['decoded_per_delivered']:.1f}" for share in shares)])
        rows.append(["frames/s", *(f"{readers[share]['median']:,.0f}" for share in shares)])
    head = ["memory for", *(share.partition(", ")[2].replace("%", " %") for share in shares)]
    about = f"Packets decoded per delivered frame of an exact shuffle; {_machine(document)}, 40 files without B-frames."
    return _page(about, head, rows)


def _store(document: Document) -> str:
    ways = ("videos", "videos with a catalog", "store")
    rows = []
    for result in document["results"]:
        rates = [_short(result["ways"][way]["frames_per_second"]) for way in ways]
        calls = ", ".join(_short(result["ways"][way]["calls_per_frame"]) for way in ways)
        rows.append([_CONTAINERS[result["container"]], result["disk"], *rates, calls])
    setup = document["setup"]
    about = (
        f"Random frames of {setup['files']} clips ({setup['clips']}); each frame opens its file again. "
        f"{_machine(document)}; each stat, open and read call takes {setup['latency_ms']:g} ms longer. "
        '"Cached" is a disk that serves repeated calls of one request from a cache.'
    )
    head = ["frames/s", "disk", "videos", "with a catalog", "store", "calls per frame (each source)"]
    return _page(about, head, rows)


_CONTAINERS = {"mp4": "MP4", "mkv": "Matroska", "ts": "MPEG-TS"}


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _catalog(document: Document) -> str:
    results = document["results"]
    build = results["build"]
    rows = [
        [f"indexing {build['files']:,} files, {name}", f"{statistics.median(times):.2f} s"]
        for name, times in build["seconds"].items()
    ]
    rows.append(["size per video", f"{build['bytes_a_video'] / 1000:.1f} kB"])
    for name, times in results["open"].items():
        number = f"{int(name.split()[0]):,} videos"
        rows.append([f"opening a catalog of {number}", f"{1000 * statistics.median(times['open_seconds']):.1f} ms"])
        found = 1000 * statistics.median(times["look_up_by_path_seconds"])
        rows.append([f"looking up a path among {number}", f"{found:.2f} ms"])
    return _page(f"{_machine(document)}.", ["operation", "median"], rows)


def _separation(document: Document) -> str:
    workers = document["runs"][0]["num_workers"]
    rows = [[f"{workers} workers, {name}", f"{found['1']:,.0f}"] for name, found in document["medians"].items()]
    rows += [
        [f"no workers, {name}", f"{statistics.median(rates):,.0f}"]
        for name, rates in document.get("without_workers", {}).items()
    ]
    gpu = document["machine"].get("gpu")
    about = (
        f"Frames per second into a training loop, six cameras, four clips per batch, {f'{gpu}, ' if gpu else ''}"
        f"{_machine(document)}, medians. "
        '"Cache" caches packets in the main process.'
    )
    return _page(about, ["loader", "frames/s"], rows)


def _on_gpu(document: Document) -> bool:
    return any(device != "cpu" for device in document["configuration"]["devices"])


def _is_right(row: dict[str, Any]) -> bool:
    return not row["wrong"] and not row["error"] and row.get("median") is not None


def _mean(rates: list[float], expected: int) -> str:
    """The mean, with a mark where it is not of all videos."""
    if not rates:
        return "-"
    return _rate(statistics.geometric_mean(rates)) + ("*" if len(rates) < expected else "")


def _gpu_cell(row: dict[str, Any]) -> str:
    if "median" in row and not row["wrong"]:
        return f"{row['median']:,.0f}"
    return "wrong frames" if row.get("wrong") else "-"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def _cell(result: dict[str, Any], family: str) -> str:
    rates = [row["median"] for row in result["readers"] if row["reader"].startswith(family) and not row["wrong"]]
    return _rate(max(rates)) if rates else "-"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


TABLES: dict[str, Callable[[Document], str]] = {
    "cpu-2-cores": numbers,
    "training-2-cores": training_numbers,
    "readers-2-cores": readers_numbers,
    "readers-h200": readers_numbers,
    "gpu-h200": gpu_numbers,
    "training-budgets": _budgets,
    "store-slow-disk": _store,
    "catalog": _catalog,
    "separation-2-cores": _separation,
    "separation-h200": _separation,
    "inference-2-cores": inference_numbers,
    "inference-h200": inference_numbers,
    "exercise-2-cores:study": study_table,
    "exercise-2-cores:exercise": exercise_table,
}
