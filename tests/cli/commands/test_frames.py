"""``framefeed frames``: the PNG files hold the frames that were asked for, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

import clips
from cli.conftest import Run
from framefeed import VideoDecoder
from framefeed.cli.commands.png import encode_png
from framefeed.testing import samples


def _read_png(path: Path) -> npt.NDArray[Any]:
    with av.open(path) as container:
        frame = next(container.decode(video=0))
    assert frame.format.name == "rgb24"
    return frame.to_ndarray()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (("--at", "0,17,-1"), [0, 17, 47]),
        (("--at", "-1,5"), [5, 47]),
        (("--at=3,3,2",), [2, 3]),
        (("--range", "0:48:10"), [0, 10, 20, 30, 40]),
        (("--range", "-3:"), [45, 46, 47]),
        (("--range", "10:0:-5"), [5, 10]),
        (("--time", "0,0.51"), [0, 15]),
    ],
)
def test_chosen_frames_are_written(
    run: Run, clip: Path, tmp_path: Path, choice: tuple[str, ...], expected: list[int]
) -> None:
    ran = run("frames", clip, *choice, "-o", tmp_path / "new" / "folder", "--json")
    assert (ran.code, ran.err) == (0, "")
    items = ran.json["frames"]
    assert [item["frame"] for item in items] == expected
    names = [f"{clip.stem}_{number:06d}.png" for number in expected]
    assert [Path(item["path"]).name for item in items] == names
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == names
    decoder = VideoDecoder(clip, dimension_order="NHWC")
    for item in items:
        picture = _read_png(Path(item["path"]))
        assert samples.read_number(picture) == item["frame"]
        assert np.array_equal(picture, decoder[item["frame"]].numpy())
        assert item["pts_seconds"] == decoder.get_frame_at(item["frame"]).pts_seconds


def test_table_says_what_was_written(run: Run, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("frames", clip, "--at", "7")
    assert ran.code == 0
    assert f"{clip.stem}_000007.png" in ran.out
    assert (tmp_path / f"{clip.stem}_000007.png").exists()


def test_size_that_changes_in_mid_stream(run: Run, clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make("h264_size_change_ts", clip_folder)
    ran = run("frames", path, "--range", ":", "-o", tmp_path, "--json")
    assert ran.code == 0
    assert len({(item["width"], item["height"]) for item in ran.json["frames"]}) > 1
    for item in ran.json["frames"]:
        assert _read_png(Path(item["path"])).shape == (item["height"], item["width"], 3)


@pytest.mark.parametrize(
    ("choice", "possible"),
    [
        (("--at", "0,48"), "0..47"),
        (("--at", "-49"), "0..47"),
        (("--time", "99"), "1.6"),
        (("--range", "5:2"), "no frames in the range 5:2; frames are 0..47"),
        (("--range", "0:10:-1"), "no frames in the range 0:10:-1;"),
        (("--range", "9:9", "--json"), "no frames in the range 9:9;"),
        (("--range", "48:"), "no frames in the range 48:;"),
    ],
)
def test_frame_that_is_not_there(run: Run, clip: Path, tmp_path: Path, choice: tuple[str, ...], possible: str) -> None:
    ran = run("frames", clip, *choice, "-o", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"framefeed: {clip}: no frame")
    assert ran.err.count("\n") == 1
    assert possible in ran.err
    assert not (tmp_path / "out").exists()


def test_folder_that_cannot_be_made(run: Run, clip: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    ran = run("frames", clip, "--at", "0", "-o", tmp_path / "taken" / "below")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"framefeed: {tmp_path / 'taken' / 'below'}: Not a directory\n"


_FULL = """
import resource, sys
from framefeed.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # a disk that takes this much of a file
sys.exit(main(sys.argv[1:]))
"""


def test_a_full_disk(clip: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FULL, "frames", str(clip), "--at", "3,5", "-o", str(tmp_path / "out")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    path = tmp_path / "out" / f"{clip.stem}_000003.png"
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"framefeed: {path}: cannot be written (File too large)\n"
    assert list((tmp_path / "out").iterdir()) == []  # no half picture


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 7, 3), (5, 1, 3), (33, 47, 3)])
def test_png_of_any_size(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    path = tmp_path / "picture.png"
    path.write_bytes(encode_png(picture))
    assert np.array_equal(_read_png(path), picture)
