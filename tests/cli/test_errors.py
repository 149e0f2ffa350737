"""What goes wrong is one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import damaged
from cli.conftest import Run
from framefeed import FramefeedError, VideoIndex
from framefeed.cli.commands import index


@pytest.fixture(scope="session")
def damaged_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@pytest.mark.parametrize("name", sorted(damaged.DAMAGED))
@pytest.mark.parametrize("command", ["info", "frames", "verify"])
def test_damaged_file(run: Run, damaged_folder: Path, tmp_path: Path, command: str, name: str) -> None:
    path = damaged.DAMAGED[name](damaged_folder)
    argv = {"frames": ("--range", ":", "-o", tmp_path)}.get(command, ())
    ran = run(command, path, *argv)
    assert "Traceback" not in ran.out + ran.err
    if ran.code == 0:  # some are whole enough
        assert ran.err == ""
        return
    assert ran.code == 2
    if command == "verify" and not ran.err:  # it goes on where frames are damaged, and lists them
        assert f"{path}: frame " in ran.out
        return
    assert ran.err.startswith(f"framefeed: {path}: ")
    assert ran.err.count("\n") == 1
    assert ran.out == ""


@pytest.mark.parametrize("name", sorted(damaged.DAMAGED))
def test_info_fails_where_the_scan_does(run: Run, damaged_folder: Path, name: str) -> None:
    path = damaged.DAMAGED[name](damaged_folder)
    try:
        VideoIndex.scan(path)
    except FramefeedError as error:
        assert run("info", path, "--json").err == f"framefeed: {error}\n"
    else:
        assert run("info", path, "--json").code == 0


def test_names_that_are_hard_to_print(run: Run, tmp_path: Path, clip: Path) -> None:
    for name in ("[bold]x[red].mp4", "two\nlines.mp4", os.fsdecode(b"caf\xe9.mp4"), "\u30d3\u30c7\u30aa.mp4"):
        missing = run("info", tmp_path / name)
        assert missing.code == 2
        assert missing.err.count("\n") == 1
        (tmp_path / name).write_bytes(clip.read_bytes())
        assert run("info", tmp_path / name).code == 0
        assert run("info", tmp_path / name, "--json").json["file"] == str(tmp_path / name)
    assert "[bold]x[red].mp4" in run("info", tmp_path / "[bold]x[red].mp4").out


def test_names_that_the_encoding_does_not_have(tmp_path: Path, clip: Path) -> None:
    path = tmp_path / "caf\u00e9 \u30d3.mp4"
    path.write_bytes(clip.read_bytes())
    for argv, code in ((("info", path), 0), (("index", path, "x.mp4", "-o", tmp_path / "\u00e9.arrow"), 1)):
        ran = subprocess.run(
            [sys.executable, "-m", "framefeed", *map(str, argv)],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (code, b"")
        assert (b"caf\\xe9 \\u30d3.mp4" if code == 0 else b"\\xe9.arrow") in ran.stdout


@pytest.mark.parametrize("command", [("pack", "store"), ("sampling",)])
def test_a_video_where_a_catalog_is_wanted(run: Run, clip: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    ran = run(command[0], clip, *(tmp_path / name for name in command[1:]))
    assert (ran.code, ran.out) == (2, "")
    how = "framefeed index VIDEOS -o catalog.arrow (in Python: framefeed.Catalog.build(videos, 'catalog.arrow'))"
    assert ran.err == f"framefeed: {clip}: not a catalog; build one with: {how}\n"


@pytest.mark.parametrize("command", ["info", "frames", "verify"])
@pytest.mark.parametrize("url", ["https://example.org/a.mp4", "s3://bucket/a.mp4?key=[1]", f"http://{'long' * 99}"])
def test_urls(run: Run, tmp_path: Path, command: str, url: str) -> None:
    ran = run(command, url, *(("--at", "0", "-o", tmp_path) if command == "frames" else ()))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"framefeed: {url}: URLs are not supported; pass a file object, for example fsspec.open(url).open()\n"
    )


def test_a_file_with_the_name_of_a_url(run: Run, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "http:" / "host").mkdir(parents=True)
    (tmp_path / "http:" / "host" / "a.mp4").write_bytes(clip.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert run("info", "http://host/a.mp4").code == 0


def test_reader_that_leaves_early(clip: Path) -> None:
    command = f'"{sys.executable}" -m framefeed info "{clip}" --json | head -c 1; echo " ${{PIPESTATUS[0]}}"'
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    # A short text may have been written before the reader left.
    assert ran.stdout.split() in (["{", "141"], ["{", "0"])
    assert ran.stderr == ""


def test_closed_reader(clip: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    for argv in (("info", str(clip)), ("info", str(clip), "--json"), ("verify", str(clip), "--sample", "1")):
        command = [sys.executable, "-m", "framefeed", *argv]
        ran = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (141, "")
    os.close(write_end)


def test_interrupt_is_quiet(run: Run, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(VideoIndex, "scan", interrupted)
    ran = run("info", clip)
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_interrupt_from_outside(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    # Tells when it is in the middle of its work, and then waits to be interrupted. Where the tests run in the
    # background, interrupts are ignored, and children inherit that.
    script = (
        "import signal, sys, time, framefeed.cli as cli\n"
        "from framefeed.testing import samples\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(folder):\n"
        "    open(sys.argv[1], 'w').close()\n"
        "    time.sleep(60)\n"
        "samples.write_samples = wait\n"
        "sys.exit(cli.main(['demo']))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(ready)], stderr=subprocess.PIPE, text=True) as process:
        try:
            while not ready.exists():
                assert process.poll() is None, process.communicate()
                time.sleep(0.02)
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()  # or else a child that goes on is a warning in whichever test runs later
    assert (process.returncode, err) == (130, "")


def test_exit_codes_are_told_apart() -> None:
    assert {index.ALL_GOOD, index.SOME_BAD} == {0, 1}
