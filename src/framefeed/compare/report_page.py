"""The results of ``framefeed bench`` as one HTML page that needs nothing but itself."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from framefeed.charts.page import STYLE
from framefeed.charts.plots import Bar, Line, Point, bars, lines
from framefeed.charts.svg import NUM_INKS, escape, number
from framefeed.compare.config import CASES
from framefeed.compare.results import (
    DEVICES,
    OURS,
    Row,
    case_of,
    comparisons,
    counted,
    counts,
    distinct,
    grouped,
    headline,
    rows_of,
    setting_of,
    spread,
    state_of,
    times,
    wrong_words,
)

__all__ = ["OURS", "headline", "page"]

NUM_EXAMPLES = 6
GROUP_SIZE_CASES = ("random", "single")


def page(document: dict[str, Any]) -> str:
    """One self-contained HTML page: no script runs on it, and nothing is loaded for it.

    Args:
        document: The results, as read from their JSON.
    """
    first, *more = headline(document)
    notice = ""
    if not document.get("complete", False):
        notice = (
            '<p class="notice" role="note"><strong>Incomplete.</strong> The benchmark was stopped before its end: '
            "this page shows what had been measured until then.</p>"
        )
    body = [
        f"<header><h1>Video readers compared</h1>{notice}<p class='lead'>{escape(first)}</p>",
        "".join(f"<p>{escape(sentence)}</p>" for sentence in more),
        f"</header><main>{_measured(document)}",
    ]
    if rows_of(document):
        body += [_glance(document), _throughput(document), _group_sizes(document), _wrong(document), _numbers(document)]
    body += [_readers(document), _videos(document), _configuration(document), "</main>"]
    # Characters that could end the element, or begin another one, are spelled out as JSON allows.
    data = json.dumps(document).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>framefeed bench, {escape(_day(document))}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + f'\n<script type="application/json" id="results">{data}</script>\n</body>\n</html>\n'
    )


# Rows of results, and what they say.


def _inks(document: dict[str, Any]) -> dict[str, int]:
    others = [name for name in distinct(row["reader"] for row in rows_of(document)) if name != OURS]
    return {OURS: 0} | {name: 1 + place % (NUM_INKS - 1) for place, name in enumerate(others)}


def _named(document: dict[str, Any], rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """The rows of one plot in the readers' order; a reader that is there in two modes has them in its name."""
    inks = list(_inks(document))
    found = [(row["reader"], row["video"]) for row in rows]
    twice = {reader for reader, video in found if found.count((reader, video)) > 1}
    ordered = sorted(rows, key=lambda row: (inks.index(row["reader"]), row["mode"]))
    return [(f"{row['reader']}, {row['mode']}" if row["reader"] in twice else row["reader"], row) for row in ordered]


# The page from top to bottom.


def _measured(document: dict[str, Any]) -> str:
    machine, gpu = document.get("machine") or {}, (document.get("machine") or {}).get("gpu")
    facts = {
        "CPU": f"{machine.get('cpus_used', '?')} cores of {machine.get('cpu', 'an unknown processor')}",
        "Memory": f"{number(machine['memory_gb'])} GB" if machine.get("memory_gb") is not None else "",
        "GPU": f"{gpu['name']}, {number(gpu['memory_gb'])} GB, driver {gpu['driver']}" if gpu else "none",
        "System": ", ".join(filter(None, (machine.get("os"), f"Python {machine.get('python', '?')}"))),
        "Versions": ", ".join(f"{name} {version}" for name, version in (document.get("versions") or {}).items()),
        "When": ", ".join(filter(None, (_day(document), _duration(document.get("took_seconds"))))),
        "Command": document.get("command", ""),
    }
    inner = "".join(f"<dt>{name}</dt><dd>{escape(fact)}</dd>" for name, fact in facts.items() if fact)
    told = (
        "<p>Every reader is asked for the same frames. They are checked first and timed afterwards, the repeats of all "
        "readers in turn; numbers are medians of frames per second, whiskers go from the slowest repeat to the fastest."
        "</p>"
    )
    return f"<section><h2>What was measured</h2>{told if rows_of(document) else ''}<dl>{inner}</dl></section>"


def _glance(document: dict[str, Any]) -> str:
    pairs, body = comparisons(document), []
    if not pairs:
        return ""
    several = len({pair.device for pair in pairs}) > 1
    for group in grouped(pairs, lambda pair: (pair.device, pair.case)):
        ratios = [pair.ratio for pair in group]
        mean = statistics.geometric_mean(ratios)
        cells = "".join(f"<td>{_data(value, times(value))}</td>" for value in (mean, min(ratios), max(ratios)))
        cells += f"<td>{sum(ratio >= 1 for ratio in ratios)} of {len(group)}</td>"
        cells += f"<td>{sum(pair.close for pair in group)}</td>"
        where = f" <small>{escape(DEVICES.get(group[0].device, group[0].device))}</small>" if several else ""
        body.append(f'<tr><th scope="row">{escape(group[0].case)}{where}</th>{cells}</tr>')
    head = ("case", "vs fastest other", "lowest", "highest", f"{OURS} fastest", "too close to call")
    lost = "".join(
        f"<li>{escape(pair.what)}: {escape(pair.other['reader'])} {number(pair.other['median'])} frames/s, {OURS} "
        f"{number(pair.ours['median'])}{' (their repeats overlap)' if pair.close else ''}</li>"
        for pair in sorted(pairs, key=lambda pair: pair.ratio)
        if pair.ratio < 1
    )
    return (
        f"<section><h2>At a glance</h2>{_table(head, [''.join(body)])}"
        "<p class='caption'>A comparison is one case on one video at one batch size on one device. “vs fastest other” "
        "is the geometric mean of framefeed’s rate over that of the fastest other reader with the right frames; too "
        "close to call are comparisons where the repeats of these two overlap.</p>"
        + (f"<h3>Where {OURS} is not the fastest</h3><ul>{lost}</ul></section>" if lost else "</section>")
    )


def _throughput(document: dict[str, Any]) -> str:
    inks, parts = _inks(document), []
    for case in grouped(rows_of(document), lambda row: row["case"]):
        name = case[0]["case"]
        told = f": {CASES[name]}" if name in CASES else ""
        parts.append(f"<h3>{escape(name)}<small>{escape(told)}</small></h3>")
        for setting in grouped(case, lambda row: (row["device"], row["batch_size"])):
            where = DEVICES.get(setting[0]["device"], setting[0]["device"])
            parts.append(f"<figure><figcaption>Frames/s, {escape(f'{setting_of(setting[0])}, {where}')}</figcaption>")
            parts.append('<div class="panels">')
            for rows in grouped(setting, lambda row: row["video"]):
                good = [row["median"] for row in rows if counts(document, row)]
                chart = [
                    _bar(label, row, inks[row["reader"]], counts(document, row) and row["median"] == max(good))
                    for label, row in _named(document, rows)
                ]
                video = rows[0]["video"]
                title = f"Frames per second, {name}, {video}, {setting_of(rows[0])}, {where}: " + "; ".join(
                    f"{bar.label} {bar.note or number(bar.value)}" for bar in chart
                )
                parts.append(f'<div class="panel"><h4>{escape(video)}</h4>{bars(chart, title)}</div>')
            parts.append("</div></figure>")
    doubtful = any(state_of(row) in ("wrong", "untested") for row in rows_of(document))
    hatched = " Hatched bars are rates of wrong or untested frames." if doubtful else ""
    return (
        "<section><h2>Throughput</h2><p class='caption'>More is better. Every panel has its own scale, from zero; the "
        f"fastest reader with the right frames is in bold.{hatched}</p>"
        f"{''.join(parts)}</section>"
    )


def _bar(label: str, row: Row, ink: int, best: bool) -> Bar:
    state, median = state_of(row), row.get("median")
    notes = {"wrong": wrong_words(row), "failed": f"failed: {row.get('error')}", "untested": "untested"}
    note = notes.get(state, "")
    if median is None:
        return Bar(label, ink, None, note=note or "not timed", detail=f"{label}: {note or 'not timed'}")
    low, high = spread(row)
    detail = f"{label}: {number(median)} frames/s, {number(low)} to {number(high)}{note and f'; {note}'}"
    return Bar(label, ink, median, low, high, note, hatched=bool(note), best=best, detail=detail)


def _group_sizes(document: dict[str, Any]) -> str:
    videos = {video["name"]: video for video in document.get("videos") or [] if video.get("gop")}
    inks, panels, left_out = _inks(document), [], False
    chosen = [row for row in rows_of(document) if row["case"] in GROUP_SIZE_CASES and row["video"] in videos]

    def kind(row: Row) -> tuple[Any, ...]:
        video = videos[row["video"]]
        return video["codec"], video["width"], video["height"]

    def sizes(rows: Iterable[Row]) -> set[int]:
        return {videos[row["video"]]["gop"] for row in rows}

    # Videos of one codec and size where there are some, as these cost time as well.
    alike = any(len(sizes(rows)) > 1 for rows in grouped(chosen, kind))
    for rows in grouped(chosen, lambda row: (row["case"], row["device"], row["batch_size"], kind(row) if alike else 0)):
        good = [(label, row) for label, row in _named(document, rows) if counts(document, row)]
        if len(sizes(row for _, row in good)) < 2:
            continue
        left_out = left_out or len(good) < len(rows)
        by_label: dict[str, dict[int, list[Row]]] = {}
        for label, row in good:
            by_label.setdefault(label, {}).setdefault(videos[row["video"]]["gop"], []).append(row)
        chart = [
            Line(label, inks[found[min(found)][0]["reader"]], tuple(_cost(gop, found[gop]) for gop in sorted(found)))
            for label, found in by_label.items()
        ]
        codec, width, height = kind(rows[0])
        name = f"{rows[0]['case']}, {setting_of(rows[0])}, {DEVICES.get(rows[0]['device'], rows[0]['device'])}"
        videos_are = f"{codec}, {width}x{height}" if alike else "all videos"
        title = f"Milliseconds per frame against group size, {name}, {videos_are}"
        plot = lines(chart, title, x_name="frames in a group", y_name="ms per frame")
        panels.append(
            f'<div class="panel"><h3>{escape(name)} <small class="line">{escape(videos_are)}</small></h3>{plot}</div>'
        )
    if not panels:
        return ""
    told = "A frame can only be decoded from the start of its group on, so long groups make random access dear."
    if not alike:
        told += " These videos differ in codec or size as well, and that is part of what is seen."
    if left_out:
        told += " Wrong and failed readings are left out."
    return (
        f"<section><h2>Cost against group size</h2><p class='caption'>Less is better. {told}</p>"
        f"<figure><div class='panels'>{''.join(panels)}</div></figure></section>"
    )


def _cost(gop: int, rows: Sequence[Row]) -> Point:
    """Milliseconds for each frame; the mean of videos that have the same group size."""
    low, high = (statistics.fmean(1000 / spread(row)[place] for row in rows) for place in (1, 0))
    return Point(gop, statistics.fmean(1000 / row["median"] for row in rows), low, high)


def _wrong(document: dict[str, Any]) -> str:
    rows, body, examples = rows_of(document), [], []
    videos = distinct(row["video"] for row in rows)
    for name in _inks(document):
        mine = [row for row in rows if row["reader"] == name]
        if mine:
            cells = "".join(_wrong_cell([row for row in mine if row["video"] == video]) for video in videos)
            body.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
        for group in grouped((row for row in mine if row.get("wrong")), lambda row: row["video"]):
            asked = distinct(
                f"asked {each['index']}, got {'no known frame' if each['got'] is None else each['got']}"
                for row in group
                for each in row.get("wrong_examples") or []
            )
            where = f" on {group[0]['video']} ({', '.join(distinct(map(case_of, group)))})"
            told = f": {'; '.join(asked[:NUM_EXAMPLES])}" if asked else ""
            examples.append(f"<li><strong>{escape(name)}</strong>{escape(where + told)}</li>")
    return (
        "<section><h2>Wrong frames</h2><p class='caption'>Frames that were not the ones asked for, of those that were "
        "checked, over all cases. Untested: no frame was seen to be wrong, but wrong ones might not have been noticed, "
        "because frames look alike or the reader converts colours in a way that is not known.</p>"
        f"{_table(('reader', *videos), [''.join(body)], 'matrix')}"
        + (f"<h3>Examples</h3><ul>{''.join(examples)}</ul></section>" if examples else "</section>")
    )


def _wrong_cell(rows: Sequence[Row]) -> str:
    if not rows:
        return '<td class="none">not measured</td>'
    states = [state_of(row) for row in rows]
    wrong, checked = (sum(row.get(key) or 0 for row in rows) for key in ("wrong", "checked"))
    failed = f"<small>{states.count('failed')} of {len(rows)} failed</small>" if "failed" in states else ""
    if wrong:
        by_case = [(case[0]["case"], sum(row.get("wrong") or 0 for row in case)) for case in grouped(rows, case_of)]
        told = escape(", ".join(f"{case} {count:,}" for case, count in by_case if count))
        return f'<td class="wrong"><strong>wrong: {wrong:,} of {checked:,}</strong><small>{told}</small>{failed}</td>'
    if set(states) == {"failed"}:
        return '<td class="failed">failed</td>'
    if not checked:
        return f'<td class="none">not checked{failed}</td>'
    if "right" not in states:
        return f'<td class="none">untested{failed}</td>'
    return f'<td class="right">0 of {checked:,}{failed}</td>'


def _numbers(document: dict[str, Any]) -> str:
    head = (
        *("reader", "mode", "median", "min", "max", "decoded per delivered", "peak memory, MB", "wrong"),
        *("requests", "frames", "every repeat"),
    )
    parts = []
    for case in grouped(rows_of(document), case_of):
        bodies = []
        for rows in grouped(case, lambda row: (row["device"], row["batch_size"], row["video"])):
            name = f"{rows[0]['video']}, {setting_of(rows[0])}, {DEVICES.get(rows[0]['device'], rows[0]['device'])}"
            body = f'<tr><th colspan="{len(head)}" scope="rowgroup">{escape(name)}</th></tr>'
            body += "".join(_number_row(row, len(head)) for _, row in _named(document, rows))
            bodies.append(body)
        parts.append(f"<h3>{escape(case[0]['case'])}</h3>{_table(head, bodies, 'told')}")
    told = "<p class='caption'>Median, slowest, fastest and every repeat in frames/s.</p>"
    return f"<section><h2>All numbers</h2>{told}{''.join(parts)}</section>"


def _number_row(row: Row, width: int) -> str:
    start = f'<tr><th scope="row">{escape(row["reader"])}</th><td>{escape(row["mode"])}</td>'
    if state_of(row) == "failed":
        return f'{start}<td class="message" colspan="{width - 2}">failed: {escape(row["error"])}</td></tr>'
    keys = ("median", "min", "max", "decoded_per_delivered", "peak_memory_mb")
    cells = "".join(f"<td>{_data(row.get(key))}</td>" for key in keys)
    words = {"wrong": f"<strong>{wrong_words(row)}</strong>", "unchecked": "not checked", "untested": "untested"}
    told = words.get(state_of(row))
    cells += f"<td>{told or '0 of ' + number(row['checked'])}</td>"
    cells += "".join(f"<td>{_data(row.get(key))}</td>" for key in ("requests", "frames"))
    rates = " ".join(_data(rate) for rate in row.get("rates") or [])
    return f'{start}{cells}<td class="repeats">{rates or escape(row.get("error") or "–")}</td></tr>'


def _readers(document: dict[str, Any]) -> str:
    readers = document.get("readers") or []
    parts = []
    used = [reader for reader in readers if reader.get("usable")]
    if used:
        body = "".join(
            f'<tr><th scope="row">{escape(reader["name"])}</th><td>{escape(reader.get("version") or "–")}</td>'
            f"<td>{'yes' if reader.get('exact') else 'no'}</td>"
            f'<td class="message">{escape(reader.get("remarks") or "")}</td></tr>'
            for reader in used
        )
        parts.append(_table(("reader", "version", "exact by design", "remarks"), [body], "plain"))
    unused = [reader for reader in readers if not reader.get("usable")]
    if unused:
        told = "".join(f"<dt>{escape(each['name'])}</dt><dd>{escape(each.get('why') or '–')}</dd>" for each in unused)
        parts.append(f"<h3>Could not be used here</h3><dl>{told}</dl>")
    failed = [row for row in rows_of(document) if row.get("error")]
    if failed:
        told = "".join(
            f"<dt>{escape(rows[0]['reader'])}</dt><dd>{escape(rows[0]['error'])} "
            f"<small>({counted(len(rows), 'measurement')}: "
            f"{escape(', '.join(distinct(row['case'] + ' on ' + row['video'] for row in rows)))})</small></dd>"
            for rows in grouped(failed, lambda row: (row["reader"], row["error"]))
        )
        parts.append(f"<h3>Failed while measuring</h3><dl>{told}</dl>")
    return f"<section><h2>Readers</h2>{''.join(parts)}</section>" if parts else ""


def _videos(document: dict[str, Any]) -> str:
    videos = document.get("videos") or []
    if not videos:
        return ""
    head = ("video", "codec", "width", "height", "frames", "frames in a group", "B-frames", "seconds", "made here")
    body = ""
    for video in videos:
        cells = "".join(f"<td>{_data(video.get(key))}</td>" for key in ("width", "height", "frames", "gop"))
        flags = ["yes" if video.get(key) else "no" for key in ("b_frames", "generated")]
        body += f'<tr><th scope="row">{escape(video["name"])}</th><td>{escape(video.get("codec", "–"))}</td>{cells}'
        body += f"<td>{flags[0]}</td><td>{_data(video.get('seconds'))}</td><td>{flags[1]}</td></tr>"
    return f"<section><h2>Videos</h2>{_table(head, [body])}</section>"


def _configuration(document: dict[str, Any]) -> str:
    told = "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt>"
        f"<dd>{escape(', '.join(map(str, value)) if isinstance(value, list | tuple) else value)}</dd>"
        for name, value in (document.get("configuration") or {}).items()
    )
    inner = f"<dl>{told}</dl>" if told else ""
    return (
        f"<section><h2>Configuration</h2>{inner}<p class='caption'>The source of this page holds all results as JSON, "
        "in the element with the id “results”.</p></section>"
    )


# Pieces.


def _table(head: Sequence[str], bodies: Iterable[str], kind: str = "") -> str:
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    inner = "".join(f"<tbody>{body}</tbody>" for body in bodies)
    # Wide tables scroll by themselves, also by keyboard.
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}"><thead><tr>{cells}</tr></thead>{inner}</table></div>'
    )


def _data(value: float | None, shown: str = "") -> str:
    """A number as people read it, with all its digits for programs."""
    return "–" if value is None else f'<data value="{value!r}">{shown or number(value)}</data>'


def _day(document: dict[str, Any]) -> str:
    started = str(document.get("started") or "")
    try:
        return datetime.fromisoformat(started).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return started


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"took {minutes:,} min {rest} s" if minutes else f"took {rest} s"
