"""The examples run as they are."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.camera_clips import write_camera_clips

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SEPARATION = EXAMPLES / "separation_decode"
SUPERRES = EXAMPLES / "superres"

Load = Callable[[str, str], Any]


def load_module(example: str, name: str) -> Any:
    """Imports a module of an example, which finds those beside it; starting Python again takes longer than the test."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES / example))
        spec = importlib.util.spec_from_file_location(f"{example}_{name}", EXAMPLES / example / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    for other in set(sys.modules) - before:
        if str(getattr(sys.modules[other], "__file__", "")).startswith(str(EXAMPLES)):
            del sys.modules[other]  # the next example may have one of the same name
    return module


@pytest.fixture
def load() -> Iterator[Load]:
    """The same, with one thread: networks are small, and OpenMP's threads spin while others decode."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_module
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drive")
    return write_camera_clips(folder, clips=4, cameras=2, frames=12, width=96, height=64, gop=6, kilobits=200)


_RANK = """
import functools, json, os, runpy, sys
from pathlib import Path
from torch import distributed
join = functools.partial(
    distributed.init_process_group,
    init_method=Path("store").absolute().as_uri(),
    rank=int(os.environ["RANK"]),
    world_size=2,
)
for number, words in enumerate(json.loads(sys.argv[1])):
    folder, before = str(Path(words[0]).parent), set(sys.modules)
    if number:  # the launcher's place to meet serves once
        distributed.init_process_group = join
    sys.argv, sys.path[0] = words, folder
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as stopped:
        assert not stopped.code, (words, stopped.code)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
            del sys.modules[name]
"""


@pytest.fixture(scope="module")
def two_ranks(index: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What two ranks printed that ran examples one after the other, and where they did."""
    folder = tmp_path_factory.mktemp("ranks")
    separation = [SEPARATION / "main.py", "--index_file", index, "--group_num", "2", "--num_workers", "1", "--json"]
    superres = [SUPERRES / "main.py", "--clips", "6", "--workers", "1", "--steps", "3", "--channels", "8"]
    examples = json.dumps([list(map(str, separation)), [*map(str, superres), "--folder", "run"]])
    (folder / "rank.py").write_text(_RANK)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "rank.py", examples]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, folder


def test_separation_decode(index: Path, load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    assert load("separation_decode", "main").main(["--json", "--index_file", str(index), "--group_num", "2"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["frames"] == 4 * 2 * 12
    assert summary["decoded_per_delivered"] == 1.0
    assert summary["packets_kept"] > 0


def test_separation_decode_on_two_ranks(two_ranks: tuple[str, Path]) -> None:
    (summary,) = [json.loads(line) for line in two_ranks[0].splitlines() if line.startswith("{")]
    assert summary["ranks"] == 2
    assert summary["frames"] == 2 * 2 * 12  # of the first rank: half of the clips


def test_separation_decode_says_what_is_wrong(
    index: Path, tmp_path: Path, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    main = load("separation_decode", "main").main
    missing, wrong = tmp_path / "nothing.json", tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"videos": {"clip00": 12}}))
    for arguments, what in [
        (["--index_file", str(missing)], str(missing)),
        (["--index_file", str(wrong)], "clip00"),
        (["--index_file", str(index), "--scale", "large"], "'large' is no size"),
    ]:
        assert main(arguments) == 1
        assert what in capsys.readouterr().err


def test_tables(
    index: Path, tmp_path: Path, load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, main = load("separation_decode", "tables"), load("separation_decode", "main").main

    def here(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        """In this process what would be started."""
        assert command[:2] == [sys.executable, str(SEPARATION / "main.py")]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = main(command[2:])
        return subprocess.CompletedProcess(command, code, said.getvalue())

    monkeypatch.setattr(tables, "subprocess", SimpleNamespace(run=here, PIPE=subprocess.PIPE))
    output = tmp_path / "tables.json"
    arguments = ["--index_file", str(index), "--device", "cpu", "--output", str(output), "--group_num", "2"]
    assert tables.main([*arguments, "--num_workers", "1", "--repeat", "1", "--warm_up", "0", "--loader"]) == 0
    document = json.loads(output.read_text())
    assert document["medians"].keys() == {"stream, cache", "stream, no cache", "random"}
    assert all(rates["1"] > 0 for rates in document["medians"].values())
    assert document["without_workers"].keys() == {"stream", "random"}
    kept = {run["case"]: run["packets_kept"] for run in document["runs"]}
    assert kept["stream, no cache"] == 0 < kept["stream, cache"]
    assert "3,270" in capsys.readouterr().out


# --- super-resolution ---


@pytest.fixture(scope="module")
def textures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small clips of moving texture: 5 to train on with 14 sequences each, one to test with."""
    folder = tmp_path_factory.mktemp("textures")
    load_module("superres", "texture").write_textures(folder, 6, frames=18, width=64, height=48)
    return folder


def _same(one: Any, other: Any) -> bool:
    """Whether two checkpoints have equal bits in all their parts."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def test_superres_goes_on_bit_for_bit(textures: Path, tmp_path: Path, load: Load) -> None:
    main = load("superres", "main").main
    common = ["--videos", str(textures), "--batch_size", "8", "--channels", "8", "--epochs", "2"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    assert main([*common, "--folder", str(whole)]) == 0
    # 8 steps an epoch: interrupted in the middle of the first, and of the second.
    assert main([*common, "--folder", str(parts), "--steps", "5"]) == 0
    state = torch.load(parts / "checkpoint.pt", weights_only=True)
    assert (state["loader"]["epoch"], state["loader"]["batch"], state["progress"]["step"]) == (0, 5, 5)
    torch.manual_seed(99)  # nothing may depend on what this process has drawn meanwhile
    assert main([*common, "--folder", str(parts), "--steps", "11", "--resume"]) == 0
    assert main([*common, "--folder", str(parts), "--resume"]) == 0
    one, other = (torch.load(folder / "checkpoint.pt", weights_only=True) for folder in (whole, parts))
    assert one["progress"]["step"] == 16 and len(one["progress"]["history"]) == 3
    assert _same(one, other)
    # The comparison can fail: a step less is another network.
    assert not _same(one["model"], state["model"])


def test_superres_learns(textures: Path, tmp_path: Path, load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    main = load("superres", "main").main
    arguments = ["--videos", str(textures), "--folder", str(tmp_path), "--batch_size", "8", "--epochs", "5"]
    assert main(arguments) == 0
    gains = [float(gain) for gain in re.findall(r"\(([+-][\d.]+)\)", capsys.readouterr().out)]
    assert len(gains) == 6 and gains[0] == 0 and gains[-1] > 0.2
    if importlib.util.find_spec("tensorboard"):
        (events,) = (tmp_path / "board").glob("events*")
        written = events.read_bytes()
        assert all(name in written for name in (b"psnr/network", b"psnr/bicubic", b"loss", b"wanted", b"PNG"))


def test_superres_on_two_ranks_from_nothing(two_ranks: tuple[str, Path]) -> None:
    said, folder = two_ranks
    state = torch.load(folder / "run" / "checkpoint.pt", weights_only=True)
    assert state["loader"]["world"] == len(state["random"]) == 2
    assert not torch.equal(state["random"][0]["torch"], state["random"][1]["torch"])
    assert len(re.findall("^epoch", said, re.MULTILINE)) == 1  # one rank speaks


def test_superres_interrupted(
    textures: Path, tmp_path: Path, load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It offers to go on where there is something to go on from."""
    module = load("superres", "main")

    def interrupt(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Training, "run", interrupt)
    arguments = ["--videos", str(textures), "--folder", str(tmp_path), "--channels", "8"]
    assert module.main(arguments) == 130
    assert capsys.readouterr().err == "interrupted; there was no checkpoint yet\n"
    (tmp_path / "checkpoint.pt").touch()
    assert module.main(arguments) == 130
    assert capsys.readouterr().err == "interrupted; --resume goes on\n"


def test_superres_without_tensorboard(
    textures: Path, tmp_path: Path, load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    arguments = ["--videos", str(textures), "--folder", str(tmp_path), "--channels", "8", "--steps", "1"]
    assert load("superres", "main").main(arguments) == 0
    assert "framefeed[examples]" in capsys.readouterr().out
    assert (tmp_path / "checkpoint.pt").exists() and not (tmp_path / "board").exists()


def test_superres_says_what_is_wrong(
    textures: Path, tmp_path: Path, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    main = load("superres", "main").main
    for arguments, what in [
        (["--videos", str(tmp_path)], "has no videos"),
        (["--videos", str(tmp_path / "none")], "is no folder"),
        (["--videos", str(textures), "--resume"], "no checkpoint"),
        (["--videos", str(textures), "--batch_size", "1000"], "less than a batch of 1000"),
        (["--videos", str(textures), "--device", "cuda:77"], "cuda:77"),
    ]:
        assert main([*arguments, "--folder", str(tmp_path)]) == 1
        assert what in capsys.readouterr().err
    assert main(["--videos", str(textures), "--channels", "4", "--steps", "1", "--folder", str(tmp_path)]) == 0
    assert main(["--videos", str(textures), "--channels", "5", "--resume", "--folder", str(tmp_path)]) == 1
    assert "another network" in capsys.readouterr().err
    saved = tmp_path / "checkpoint.pt"
    for damaged in (b"", b"something else", saved.read_bytes()[:2000]):
        saved.write_bytes(damaged)
        assert main(["--videos", str(textures), "--channels", "4", "--resume", "--folder", str(tmp_path)]) == 1
        assert "is no checkpoint" in capsys.readouterr().err


# --- 200 files ---


def test_frames200(tmp_path_factory: pytest.TempPathFactory, load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    main = load("frames200", "main").main
    folder = tmp_path_factory.getbasetemp() / "frames200"
    common = ["--folder", str(folder), "--files", "15", "--workers", "1", "--batch_size", "32"]
    assert main([*common, "--epochs", "2"]) == 0
    said = capsys.readouterr().out
    assert "15 files, 750 samples" in said
    accuracy = [float(found) for found in re.findall(r"unseen files ([\d.]+)%", said)]
    assert len(accuracy) == 2 and accuracy[-1] > 35  # of five classes
    assert main([*common, "--order", "buffered:64", "--no_model", "--epochs", "1", "--steps", "5"]) == 0
    said = capsys.readouterr().out
    assert "it/s" in said and "accuracy" not in said


def test_frames200_says_what_is_wrong(
    tmp_path_factory: pytest.TempPathFactory, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "frames200"
    main = load("frames200", "main").main
    common = ["--folder", str(folder), "--files", "15", "--workers", "1"]
    for arguments, what in [
        (["--batch_size", "1000"], "750 frames; a batch has 1000"),
        (["--order", "random"], "unknown order 'random'; expected"),
        (["--memory_budget", "much"], "no amount of memory"),
    ]:
        assert main([*common, *arguments]) == 1
        assert what in capsys.readouterr().err


# --- clips ---


@pytest.mark.parametrize("times", ["fps", "offsets"])
def test_clips(
    times: str, tmp_path_factory: pytest.TempPathFactory, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "scenes"
    common = ["--folder", str(folder), "--files", "2", "--workers", "1", "--epochs", "1", "--test_batches", "2"]
    augment = "--augment" if importlib.util.find_spec("kornia") else "--no-augment"
    assert load("clips", "main").main([*common, "--steps", "2", "--batch_size", "4", "--times", times, augment]) == 0
    said = capsys.readouterr().out
    assert "of 8 classes" in said and re.search(r"accuracy [\d.]+%", said)
    # One file of each class, at 20 frames a second: all 60 frames are anchors, or the first 30 begin a clip of 1.6 s.
    assert f"8 files, {8 * (60 if times == 'offsets' else 30)} samples of 16 frames" in said


def test_clips_say_what_is_wrong(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    main = load("clips", "main").main
    assert main(["--videos", str(tmp_path / "none")]) == 1
    assert "is no folder" in capsys.readouterr().err
    (tmp_path / "only").mkdir()
    assert main(["--videos", str(tmp_path)]) == 1
    assert "two or more classes" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    for name in ("notes.txt", "labels.csv", ".hidden.mp4", "one.mp4"):
        (tmp_path / "only" / name).touch()
    assert main(["--videos", str(tmp_path)]) == 1
    assert "has 1 videos; two are needed" in capsys.readouterr().err
    made = ["--folder", str(tmp_path_factory.getbasetemp() / "scenes"), "--files", "2", "--workers", "1"]
    assert main([*made, "--times", "offsets", "--fps", "7"]) == 1  # no whole number of frames lies between
    said = capsys.readouterr().err
    assert "no frame within 0.0001 s" in said and "tolerance_s=" in said
