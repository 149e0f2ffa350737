"""Which readers there are, what they need, and what is said where that is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import framefeed
from framefeed import MissingBackend
from framefeed.cli import main
from framefeed.readers import READERS, AbstractVideoReader, open_reader, usable

Find = Callable[[str], Path]
OTHERS = [name for name in READERS if name not in ("framefeed", "pyav")]


@pytest.fixture
def path(reader_clips: Find) -> Path:
    return reader_clips("h264_bframes.mp4")


def test_all_are_there() -> None:
    assert set(READERS) == {
        *("framefeed", "opencv", "torchcodec", "torchvision", "vali"),
        *("pyav", "decord", "pynvvideocodec", "dali", "spdl"),
    }
    assert len(READERS) == 10 and all(issubclass(reader, AbstractVideoReader) for reader in READERS.values())
    with pytest.raises(KeyError):
        READERS["ffmpeg"]


def test_importing_loads_no_library() -> None:
    libraries = ("torch", "av", "cv2", "decord", "nvidia", "python_vali", "spdl", "torchcodec", "torchvision", "numpy")
    code = (
        "import sys; from framefeed.readers import READERS; list(READERS); "
        f"print(*(name for name in {libraries!r} if name in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_looking_at_the_classes_loads_no_other_reader() -> None:
    libraries = ("cv2", "decord", "nvidia", "python_vali", "spdl", "torchcodec", "torchvision", "PyNvVideoCodec", "av")
    code = (
        "import sys; from framefeed.readers import READERS; [reader.version() for reader in READERS.values()]; "
        f"print(*(name for name in {libraries!r} if name in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_unknown_reader(path: Path) -> None:
    with pytest.raises(ValueError, match="unknown reader 'ffmpeg'; expected one of framefeed, torchcodec"):
        open_reader("ffmpeg", path)


@pytest.mark.parametrize(
    ("arguments", "possible"),
    [
        ({"mode": "fast"}, "mode='fast' is not supported by pyav; expected 'seek', 'stream'"),
        ({"output_format": "NCHW"}, "output_format='NCHW' is not supported; expected 'THWC', 'TCHW'"),
        ({"device": "cuda"}, "device='cuda' is not supported by pyav; expected 'cpu'"),
        ({"device": "toaster"}, "device='toaster' is not supported by pyav; expected 'cpu'"),
    ],
)
def test_bad_arguments_say_what_is_possible(path: Path, arguments: dict[str, str], possible: str) -> None:
    with pytest.raises(ValueError, match=possible):
        open_reader("pyav", path, **arguments)


def test_gpu_readers_do_not_decode_elsewhere(path: Path) -> None:
    with pytest.raises(ValueError, match="device='cpu' is not supported by vali; expected 'cuda'"):
        open_reader("vali", path)


@pytest.mark.parametrize("name", OTHERS)
def test_missing_library(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = READERS[name]
    for part in {reader.package, reader.package.split(".")[0]}:
        monkeypatch.setitem(sys.modules, part, None)
    monkeypatch.setattr(reader, "check_device", classmethod(lambda cls, device: torch.device("cpu")))
    with pytest.raises(MissingBackend) as caught:
        open_reader(name, path)
    assert str(caught.value) == f"{reader.package}: is not installed: {reader.install}"
    info = {info.name: info for info in usable()}[name]
    assert not info.usable and info.why == str(caught.value)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise RuntimeError('libavcodec.so.61:\\n  cannot open')", "cannot be loaded: libavcodec.so.61: cannot open"),
        ("raise OSError('libcuda.so.1: no such file')", "is installed but cannot be loaded: libcuda.so.1"),
        ("import no_such_dependency", "cannot be loaded: No module named 'no_such_dependency'"),
        ("raise ImportError('built for another Python')", "is installed but cannot be loaded: built for another"),
    ],
)
def test_library_that_cannot_be_loaded(
    code: str, why: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "decord.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "decord", raising=False)
    with pytest.raises(MissingBackend, match=why) as caught:
        open_reader("decord", path)
    assert "\n" not in str(caught.value)
    assert {info.name: info for info in usable()}["decord"].why == str(caught.value)


@pytest.mark.parametrize("name", [name for name in READERS if "cuda" in READERS[name].devices])
def test_without_a_gpu(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingBackend, match=r"cuda: (torch finds no usable GPU|this torch was built without CUDA)"):
        open_reader(name, path, device="cuda")


def test_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check = READERS["vali"].check_device
    assert [check(name) for name in ("cuda", "cuda:0")] == [torch.device("cuda", 1), torch.device("cuda", 0)]
    with pytest.raises(ValueError, match="device='cuda:2' is out of range: found 2 GPUs"):
        check("cuda:2")


def test_usable_here() -> None:
    found = {info.name: info for info in usable()}
    assert list(found) == list(READERS)
    for name in ("framefeed", "pyav"):
        assert found[name].usable and found[name].why == "" and found[name].version
    assert found["framefeed"].version == framefeed.__version__ and found["framefeed"].exact
    assert all(info.usable or info.why for info in found.values())


def test_usable_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not any(info.usable for info in usable("cuda"))
    found = {info.name: info for info in usable("cuda")}
    assert "expected 'cpu'" in found["pyav"].why
    assert "no usable GPU" in found["framefeed"].why or "without CUDA" in found["framefeed"].why


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["readers"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "" and all(name in printed.out for name in READERS)
    assert main(["readers", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["readers"]}
    assert set(rows) == set(READERS) and rows["pyav"]["usable"] is True
    assert set(rows["pyav"]) == {"name", "version", "devices", "usable", "why", "exact", "remarks"}


def test_command_for_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["readers", "--device", "cpu", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["readers"]}
    assert rows["framefeed"]["usable"] and not rows["dali"]["usable"]
