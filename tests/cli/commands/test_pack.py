"""``framefeed pack``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import clips
from cli.conftest import Run
from framefeed import Catalog, VideoDecoder


@pytest.fixture
def videos(clip_folder: Path, tmp_path: Path) -> list[Path]:
    kinds = ("h264_open_gop", "h264_ts", "vp9_alt_ref")
    return [Path(shutil.copy(clips.make(kind, clip_folder), tmp_path)) for kind in kinds]


@pytest.fixture
def catalog(videos: list[Path], tmp_path: Path) -> Path:
    return Path(Catalog.build(videos, tmp_path / "catalog.arrow").path)


def test_a_store(run: Run, videos: list[Path], catalog: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for new in (3, 0):  # the second time it is there already
        ran = run("pack", catalog, store, "--shard-size", "20kB", "--json")
        assert (ran.code, ran.err) == (0, "")
        facts = ran.json
        assert (facts["store"], facts["videos"], facts["new"], facts["bad"]) == (str(store), 3, new, [])
        assert facts["video_bytes"] == sum(path.stat().st_size for path in videos)
        assert facts["store_bytes"] == sum(path.stat().st_size for path in store.iterdir())
        assert facts["share"] == facts["store_bytes"] / facts["video_bytes"]
        assert facts["shards"] == len(list(store.glob("packets-*.bin"))) > 1
    videos[1].unlink()
    assert len(VideoDecoder(videos[1], index=Catalog.open(store)).get_all_frames()) == 48
    ran = run("pack", "--verify", store, "--json")
    assert ran.code == 0 and ran.json["videos"] == 3 and ran.json["bad"] == []


def test_as_a_table(run: Run, catalog: Path, tmp_path: Path) -> None:
    ran = run("pack", catalog, tmp_path / "store")
    assert (ran.code, ran.err) == (0, "")
    assert all(word in ran.out for word in ("video bytes", "store bytes", "share", "%"))
    assert "good bytes" in run("pack", "--verify", tmp_path / "store").out
    assert run("pack", catalog, tmp_path / "store", "--quiet").out == ""


def test_videos_that_are_missing(run: Run, videos: list[Path], catalog: Path, tmp_path: Path) -> None:
    videos[1].unlink()
    ran = run("pack", catalog, tmp_path / "store")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"framefeed: {videos[1]}: no such file\n"
    ran = run("pack", catalog, tmp_path / "store", "--on-error", "skip", "--json")
    assert (ran.code, ran.json["videos"]) == (1, 2)
    assert ran.json["bad"] == [{"file": str(videos[1]), "reason": "no such file"}]
    ran = run("pack", catalog, tmp_path / "store", "--on-error", "skip", "--quiet")
    assert ran.code == 1 and str(videos[1]) in ran.out


def test_a_damaged_store(run: Run, videos: list[Path], catalog: Path, tmp_path: Path) -> None:
    run("pack", catalog, tmp_path / "store")
    shard = tmp_path / "store" / "packets-00000.bin"
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    ran = run("pack", "--verify", tmp_path / "store")
    assert ran.code == 1
    assert str(videos[0]) in ran.out and str(shard) in ran.out and str(videos[1]) not in ran.out
    ran = run("pack", "--verify", tmp_path / "store", "--json")
    assert ran.code == 1 and [each["file"] for each in ran.json["bad"]] == [str(videos[0])]


def test_what_is_no_store(run: Run, catalog: Path, tmp_path: Path) -> None:
    for argv, words in (
        (("pack", "--verify", tmp_path / "nowhere"), "no such catalog"),
        (("pack", "--verify", catalog), "not of a packet store"),
        (("pack", tmp_path / "nowhere.arrow", tmp_path / "store"), "no such catalog"),
        (("pack", catalog, catalog), "choose another folder"),
    ):
        ran = run(*argv)
        assert (ran.code, ran.out) == (2, "") and words in ran.err
