"""``framefeed info``."""

from __future__ import annotations

from pathlib import Path

import pytest

import clips
from cli.conftest import Run
from framefeed import VideoIndex
from framefeed.plan import random_frame_cost


def test_facts(run: Run, clip: Path) -> None:
    ran = run("info", clip, "--json")
    assert (ran.code, ran.err) == (0, "")
    facts = ran.json
    index = VideoIndex.scan(clip)
    assert facts["file"] == str(clip)
    assert facts["stream"]["codec"] == "h264"
    assert (facts["stream"]["width"], facts["stream"]["height"]) == (96, 64)
    assert facts["time"]["fps"] == pytest.approx(30)
    assert facts["frames"]["count"] == len(index) == 48
    assert facts["packets"]["count"] == len(index.packets)
    assert facts["packets"]["nonreference_share"] == index.nonreference_share()
    assert facts["groups"]["count"] > facts["groups"]["open"] > 0
    sizes = facts["groups"]
    assert sizes["frames_min"] <= sizes["frames_median"] <= sizes["frames_max"]
    cost = facts["random_frame_cost"]
    assert cost["skipping_nonreference"]["mean"] == random_frame_cost(index.packets).mean()
    assert 1 <= cost["skipping_nonreference"]["mean"] < cost["feeding_all"]["mean"]


def test_table_has_the_same_facts(run: Run, clip: Path) -> None:
    ran = run("info", clip)
    assert (ran.code, ran.err) == (0, "")
    for words in (str(clip), "h264, yuv420p", "96x64", "open)", "non-reference", "packets for a random frame"):
        assert words in ran.out


@pytest.mark.parametrize("name", sorted(clips.KINDS))
def test_every_kind_can_be_described(run: Run, clip_folder: Path, name: str) -> None:
    path = clips.make(name, clip_folder)
    ran = run("info", path, "--json")
    assert (ran.code, ran.err) == (0, "")
    numbers = clips.KINDS[name].numbers
    assert numbers is None or ran.json["frames"]["count"] == len(numbers)
    assert run("info", path).code == 0


def test_turned_picture(run: Run, clip_folder: Path) -> None:
    ran = run("info", clips.make("rotated_90", clip_folder), "--json")
    stream = ran.json["stream"]
    assert (stream["width"], stream["height"]) == (stream["stored_height"], stream["stored_width"])
    assert stream["rotation_degrees"] == 90
