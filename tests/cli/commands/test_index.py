"""``framefeed index``."""

from __future__ import annotations

from pathlib import Path

import pytest

import clips
import damaged
from catalog.catalog_help import close_folder
from cli.conftest import Run


@pytest.fixture
def videos(clip_folder: Path) -> list[Path]:
    return [clips.make(name, clip_folder) for name in ("h264_open_gop", "hevc_open_gop", "vp9_alt_ref")]


def test_good_files(run: Run, videos: list[Path], tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.arrow"
    for _ in range(2):  # the second time it is updated
        ran = run("index", *videos, "-o", catalog, "--workers", "1", "--json")
        assert (ran.code, ran.err) == (0, "")
        frames = sum(len(clips.KINDS[path.stem].numbers or ()) for path in videos)
        assert ran.json == {"catalog": str(catalog), "videos": 3, "frames": frames, "bad": []}
    assert catalog.exists()


def test_bad_files_are_listed(run: Run, videos: list[Path], tmp_path: Path) -> None:
    bad = [damaged.text(tmp_path), damaged.no_moov(tmp_path)]
    ran = run("index", *videos, *bad, "-o", tmp_path / "catalog.arrow", "--json")
    assert ran.code == 1
    assert ran.json["videos"] == 3
    assert sorted(item["file"] for item in ran.json["bad"]) == sorted(map(str, bad))
    assert all(item["reason"] for item in ran.json["bad"])
    ran = run("index", *videos, *bad, "-o", tmp_path / "catalog.arrow")
    assert ran.code == 1
    for words in ("videos", "bad files", *map(str, bad)):
        assert words in ran.out


def test_first_bad_file_can_stop_it(run: Run, videos: list[Path], tmp_path: Path) -> None:
    bad = damaged.text(tmp_path)
    ran = run("index", *videos, bad, "-o", tmp_path / "catalog.arrow", "--on-error", "raise")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"framefeed: {bad}: ")
    assert ran.err.count("\n") == 1


def test_quiet_prints_bad_files_only(run: Run, videos: list[Path], tmp_path: Path) -> None:
    ran = run("index", *videos, "-o", tmp_path / "catalog.arrow", "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    bad = damaged.text(tmp_path)
    ran = run("index", bad, "-o", tmp_path / "bad.arrow", "--quiet")
    assert ran.code == 1
    assert str(bad) in ran.out


def test_a_wrong_name_costs_nothing(run: Run, videos: list[Path], tmp_path: Path) -> None:
    catalog = tmp_path / "precious.arrow"
    assert run("index", *videos, "-o", catalog).code == 0
    good = catalog.read_bytes()
    ran = run("index", tmp_path / "vidoes", "-o", catalog)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"framefeed: {catalog}: no video could be indexed ({tmp_path / 'vidoes'}: no such file); this catalog is kept, "
        "with 3 videos: delete it first if you want an empty catalog\n"
    )
    assert catalog.read_bytes() == good
    ran = run("index", tmp_path / "vidoes", "-o", tmp_path / "new.arrow", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious.arrow"]


def test_other_files_are_not_replaced(run: Run, videos: list[Path], tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    ran = run("index", *videos, "-o", notes)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"framefeed: {notes}: not a catalog; writing would replace it: choose another name\n"
    assert notes.read_text() == "mine"


def test_folders_that_cannot_be_read_are_listed(
    run: Run, videos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "a.mp4").write_bytes(videos[0].read_bytes())
    close_folder(monkeypatch, closed)
    ran = run("index", tmp_path, "-o", tmp_path / "catalog.arrow", "--json")
    assert (ran.code, ran.json["videos"]) == (1, 1)
    assert ran.json["bad"] == [{"file": str(closed), "reason": "a folder that cannot be read (Permission denied)"}]
