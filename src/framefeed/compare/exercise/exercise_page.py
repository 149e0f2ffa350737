"""The exercise's tables and plot, from its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framefeed.charts.plots import LEAST_EFFECT, MODELS, ORDERS, OTHERS, Dot, scatter
from framefeed.compare.exercise.exercise import OURS

__all__ = ["exercise_plot", "exercise_table", "independent_rate", "study_table"]


def study_table(document: Mapping[str, Any]) -> str:
    """The loader's orders on the exercise's files, as Markdown."""
    study, config = document["study"], document["configuration"]
    values = study["correlation"]
    lines = [
        f"{study['num_files']} H.264 files of {config['width']}x{config['height']}, {study['num_frames']:,} frames, "
        f"groups of {config['gop']}, batches of {study['batch_size']}, memory for frames of {config['size']}x"
        f"{config['size']}. Mean luma: correlation of two frames of a group {values['group']:.2f}, of two groups of a "
        f"file {values['file']:.2f}.",
        "",
        "| order | unbiased | least/most likely frame | two frames of one group | design effect | over "
        f"{study['steps']} batches | packets decoded for each frame | the same precision costs | memory |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in study["rows"]:
        name = f"*{row['name']}*" if row["is_model"] else f"`{row['name']}`"
        cells = [
            name,
            _UNBIASED[row["unbiased"]],
            f"{row['least'] / row['most']:.2g}",
            ("~" if row["how"] == "simulated" else "") + f"{row['same_group']:.2%}",
            _figure(row["design_effect"]),
            _figure(row["over_steps"]),
            _figure(row["decoded_per_delivered"]),
            _figure(row["price"]),
            _memory(row["memory_bytes"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "In italics, ways to draw that are no orders of the loader. ~ is simulated."]
    return "\n".join(lines)


_UNBIASED = {"steps": "at every step", "inner": "at inner steps", "epochs": "over an epoch", "never": "never"}


def exercise_table(document: Mapping[str, Any]) -> str:
    """The exercise's results, as Markdown."""
    config, machine, versions = (document[name] for name in ("configuration", "machine", "versions"))
    lines = [
        f"{machine['cpus_used']} cores of an {machine['cpu']}, {config['files']} files, batches of "
        f"{config['batch_size']} as floats of {config['size']}x{config['size']}, medians of {config['repeat']}; frames "
        f"checked before timing. framefeed {versions['framefeed']}, PyAV {versions['av']}, torch {versions['torch']}, "
        f"{config['workers']} workers or threads.",
        "",
        "| way | read by | batches/s | design effect | measured | independent frames/s | least/most likely frame | two "
        "frames of one group | packets for each frame: planned, counted |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in document["results"]:
        found = row["statistics"]
        rate = row["median"]
        if rate is None or not found:
            continue
        planned = found["decoded_per_delivered"]
        counted = row["measured_decoded_per_delivered"]
        cells = [
            row["name"] if row["reader"] != OURS else f"**{row['name']}**",
            row["reader"],
            "wrong frames" if row["wrong"] else f"{rate:.2f}",
            _figure(found["design_effect"]),
            _figure(found["measured_effect"]),
            f"{independent_rate(row, config['batch_size']):,.0f}",
            f"{found['least'] / found['most']:.2g}",
            f"{found['same_group']:.2%}",
            "" if planned is None else f"{_figure(planned)}, {_figure(counted)}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def independent_rate(row: Mapping[str, Any], batch_size: int) -> float:
    """Independent frames that would tell as much, a second."""
    return float(row["median"] * batch_size / max(row["statistics"]["design_effect"], LEAST_EFFECT))


def exercise_plot(document: Mapping[str, Any]) -> str:
    """Throughput against design effect."""
    dots = []
    for row in document["results"]:
        found = row["statistics"]
        if row["median"] is None or not found or row["wrong"]:
            continue
        ours = row["reader"] == OURS
        ink = ORDERS if ours else MODELS if found["unbiased"] == "never" else OTHERS
        label = row["name"] if ours else f"{row['reader']}: {row['name']}"
        dots.append(Dot(label, ink, row["median"], max(found["design_effect"], LEAST_EFFECT)))
    size = document["configuration"]["batch_size"]
    return scatter(
        dots,
        f"{document['configuration']['files']} files, batches of {size}: speed, and what a batch is worth",
        x_name="batches a second",
        y_name="design effect: variance of a batch's mean beside independent frames",
        note="better: to the right and down; squares are biased",
    )


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _memory(amount: int) -> str:
    if not amount:
        return ""
    return f"{amount / 2**30:.1f} GiB" if amount >= 2**30 else f"{amount / 2**20:.0f} MiB"
