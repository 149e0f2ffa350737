"""The benchmark that users run: the same frames for everybody, wrong ones caught, nothing lost when it is stopped."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framefeed._util.versions import source_digest
from framefeed.cli import main
from framefeed.compare import suite as suite_run
from framefeed.compare.compared_videos import ComparedVideo, generate, open_video
from framefeed.compare.config import CASES, Config, requests
from framefeed.compare.provenance import sources
from framefeed.compare.reader_process import Job, ReaderFailed, Worker, reader_class
from framefeed.compare.results import counts, headline
from framefeed.compare.suite import Bench
from framefeed.compare.truth import DecodedTruth, PaintedTruth, Sight, Truth
from framefeed.decoder.video_decoder import VideoDecoder
from framefeed.errors import InvalidFile
from framefeed.testing.samples import painted_frame, write_clip

HERE = str(Path(__file__).parent)
SIZE = {"frames": 48, "width": 320, "height": 180}
ASKED_ONCE = functools.cache(suite_run.find_readers)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[ComparedVideo]:
    folder = tmp_path_factory.mktemp("suite")
    return generate(folder, ("h264_gop12", "h264_gop30"), lambda done, total: None, **SIZE)


@pytest.fixture(autouse=True)
def readers_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_run, "find_readers", ASKED_ONCE)


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(HERE)
    yield
    sys.modules.pop("own_readers", None)


# --- what is asked for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_frames", [1, 5, 48, 10_000])
@pytest.mark.parametrize("case", CASES)
def test_requests_are_the_same_for_everybody(case: str, num_frames: int) -> None:
    config = Config(("framefeed",), max_batches=3, frame_skip=7, clip_length=9)
    (size,) = config.sizes(case)
    asked = requests(case, num_frames, size, config)
    assert asked == requests(case, num_frames, size, config)
    assert asked and all(0 <= frame < num_frames for request in asked for frame in request)
    assert all(1 <= len(request) <= size for request in asked)
    assert len(asked) <= (12 if case in ("single", "in-order") else 3)
    if case in ("in-order", "every"):
        flat = [frame for request in asked for frame in request]
        assert flat == list(range(0, num_frames, 7 if case == "every" else 1))[: len(flat)]
    if case == "clips":
        assert all(request == list(range(request[0], request[0] + min(9, num_frames))) for request in asked)
    if case == "random":
        assert all(len(set(request)) == len(request) for request in asked)


def test_another_seed_asks_for_other_frames() -> None:
    one, other = (requests("random", 1000, 8, Config(("framefeed",), seed=seed)) for seed in (1, 2))
    assert one != other
    assert requests("random", 0, 8, Config(("framefeed",))) == []


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"cases": ("randon",)}, "unknown 'randon'; expected random, single"),
        ({"devices": ("tpu",)}, "expected cpu, cuda"),
        ({"mode": "fast"}, "expected best, seek, stream"),
        ({"repeat": 0}, "repeat must be at least 1"),
        ({"batch_sizes": (0,)}, "batch sizes must be at least 1"),
        ({"readers": ()}, "readers is empty"),
    ],
)
def test_what_cannot_be_measured(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Config(**({"readers": ("framefeed",)} | arguments))


# --- wrong frames ---------------------------------------------------------------------------------------------------


def test_painted_numbers_tell(videos: list[ComparedVideo]) -> None:
    frames = VideoDecoder(videos[0].path, dimension_order="NHWC").get_frames_at([3, 4, 5]).data.numpy()
    truth = PaintedTruth()

    def judged(pictures: Any, asked: list[int]) -> list[tuple[int, int | None]]:
        sights = [Sight(0, place, index, truth.look(pictures[place])) for place, index in enumerate(asked)]
        verdict = truth.judge(sights, lambda sight: pictures[sight.place])
        assert verdict.checked == len(asked) and verdict.tested
        return [(each.index, each.got) for each in verdict.wrong]

    assert judged(frames, [3, 4, 5]) == []
    assert judged(frames, [3, 5, 5]) == [(5, 4)]
    assert judged(np.zeros_like(frames[:1]), [3]) == [(3, None)]


def test_a_video_of_still_pictures_is_untested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong reader is not called right, and not the fastest either."""
    still = write_clip(
        tmp_path / "still.mkv", codec="ffv1", gop=1, frames=40, painter=lambda number: painted_frame(1, 160, 96)
    )
    monkeypatch.chdir(HERE)
    words = ["bench", str(still), "--readers", "pyav,own_readers:OffByOne", "--cases", "random", "--batch-sizes", "8"]
    words += ["--repeat", "1", "--max-batches", "1", "--least-seconds", "0", "-o", str(tmp_path / "x.json")]
    assert main(words) == 0
    said = capsys.readouterr().out
    document = json.loads((tmp_path / "x.json").read_text())
    assert [row["tested"] for row in document["results"]] == [False, False] and said.count("untested") == 2
    assert not any(counts(document, row) for row in document["results"])
    assert any("Untested, as frames look alike" in each for each in headline(document))
    page = (tmp_path / "x.html").read_text()
    assert '<td class="none">untested</td>' in page and "0 of 8" not in page
    sys.modules.pop("own_readers", None)


def test_a_file_that_is_no_video(tmp_path: Path) -> None:
    path = tmp_path / "no.mp4"
    path.write_bytes(b"nothing" * 100)
    with pytest.raises(InvalidFile, match=r"no\.mp4"):
        DecodedTruth(path, 5)


# --- readers in processes of their own ------------------------------------------------------------------------------


def _job(video: ComparedVideo, asked: tuple[list[int], ...] = ([0, 5], [7])) -> Job:
    return Job(video.path, "stream", "cpu", list(asked))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("Dies", "its process died .SIGKILL"),
        ("Raises", "RuntimeError: no frames today"),
        ("OneTooFew", r"2 frames were asked for, and a tensor of \(1, 180, 320, 3\) came"),
    ],
)
def test_a_reader_that_fails_fails_alone(name: str, what: str, videos: list[ComparedVideo]) -> None:
    worker = Worker(f"own_readers:{name}", 60, [HERE])
    for _ in range(2):  # it is started again
        with pytest.raises(ReaderFailed, match=what):
            worker.check(_job(videos[0]), videos[0].truth)
    worker.close()


def test_a_reader_that_hangs_is_given_up_on(videos: list[ComparedVideo]) -> None:
    worker = Worker("own_readers:Hangs", 1.0, [HERE])
    with pytest.raises(ReaderFailed, match="took longer than 1 s"):
        worker.time(_job(videos[0]))
    worker.close()


def test_a_reader_that_is_none(on_path: None) -> None:
    with pytest.raises(ReaderFailed, match="does not inherit from"):
        Worker("own_readers:NoReader", 5, [HERE]).time(_job(ComparedVideo("x", Path("x"), PaintedTruth(), 1, {})))
    for name, what in (("nobody", "possible: framefeed"), ("own_readers:No", "no attribute"), ("no_module:X", "named")):
        with pytest.raises(ValueError, match=what):
            reader_class(name)


def test_what_a_worker_tells(videos: list[ComparedVideo]) -> None:
    worker = Worker("framefeed", 60)
    assert worker.check(_job(videos[0]), videos[0].truth).wrong == []
    timed = worker.time(_job(videos[0]))
    assert timed.seconds > 0 and timed.decoded is not None and timed.decoded >= 3
    assert timed.peak_bytes is not None and timed.peak_bytes > 10_000_000
    with pytest.raises(ReaderFailed, match="IndexError"):
        worker.time(_job(videos[0], ([1000],)))
    assert worker.time(_job(videos[0])).seconds > 0
    worker.close()


# --- all of it ------------------------------------------------------------------------------------------------------


def test_a_wrong_reader_is_caught(videos: list[ComparedVideo], tmp_path: Path, on_path: None) -> None:
    names = ("framefeed", "pyav", "own_readers:OffByOne", "own_readers:Raises")
    config = Config(names, cases=("random", "in-order"), batch_sizes=(8,), repeat=2, max_batches=2, least_seconds=0.01)
    said: list[tuple[int, int, str]] = []
    bench = Bench(config, videos, tmp_path / "out" / "bench.json", command="x", search=[HERE])
    bench.run(lambda *what: said.append(what))
    document = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert document == bench.document and document["complete"]
    assert len(document["results"]) == 4 * 2 * 2
    assert set(sources(document).values()) == {source_digest()}
    for row in document["results"]:
        if row["reader"] == "own_readers:Raises":
            assert "no frames today" in row["error"] and row["median"] is None
            continue
        assert row["error"] is None and len(row["rates"]) == 2
        assert row["min"] <= row["median"] <= row["max"]
        assert row["peak_memory_mb"] > 10 and row["checked"] == row["frames"] == (16 if row["case"] == "random" else 48)
        assert bool(row["wrong"]) == (row["reader"] == "own_readers:OffByOne")
    wrong = [row for row in document["results"] if row["wrong"]]
    assert len(wrong) == 4
    examples = [each for row in wrong for each in row["wrong_examples"]]
    assert all(each["got"] == each["index"] + 1 for each in examples)
    ours = [row for row in document["results"] if row["reader"] == "framefeed"]
    assert all(row["decoded_per_delivered"] > 0 for row in ours)
    assert {reader["name"] for reader in document["readers"]} >= {"framefeed", "pyav", "dali", "own_readers:OffByOne"}
    assert all(reader["why"] for reader in document["readers"] if not reader["usable"])
    assert said[-1][0] <= said[-1][1] == 3 * 4 and [done for done, _, _ in said] == sorted(done for done, _, _ in said)
    assert document["configuration"]["batch_sizes"] == [8] and document["videos"][1]["gop"] == 30
    assert not list((tmp_path / "out").glob(".*"))


def test_a_mode_that_takes_for_ever_is_given_up(
    videos: list[ComparedVideo], tmp_path: Path, on_path: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[tuple[str, float | None]] = []
    check = Worker.check

    def note(worker: Worker, job: Job, truth: Truth, limit: float | None = None) -> Any:
        checks.append((job.mode, limit))
        return check(worker, job, truth, limit)

    monkeypatch.setattr(Worker, "check", note)
    monkeypatch.setattr(suite_run, "LEAST_LIMIT", 0.5)
    monkeypatch.setattr(Worker, "read", None)  # a few frames are enough to know
    config = Config(("own_readers:SlowSeek",), cases=("in-order",), repeat=1, least_seconds=0)
    bench = Bench(config, videos[:1], tmp_path / "x.json", search=[HERE])
    begin = time.monotonic()
    bench.run(lambda *what: None)
    assert time.monotonic() - begin < 48 * 0.4  # what a check of that mode would take
    assert checks == [("stream", None)]
    (row,) = bench.document["results"]
    assert row["mode"] == "stream" and not row["wrong"] and row["error"] is None


def test_a_mode_that_is_slow_at_first_is_not_given_up(
    videos: list[ComparedVideo], tmp_path: Path, on_path: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_run, "LEAST_LIMIT", 0.5)
    names = ("own_readers:SlowStart",)
    config = Config(names, cases=("random",), batch_sizes=(8,), repeat=1, max_batches=1, least_seconds=0)
    bench = Bench(config, videos[:1], tmp_path / "x.json", search=[HERE])
    bench.run(lambda *what: None)
    (row,) = bench.document["results"]
    assert row["mode"] == "stream" and not row["wrong"] and row["error"] is None


def test_readers_take_turns(videos: list[ComparedVideo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    timed = suite_run.CaseReader.time

    def note(entry: suite_run.CaseReader) -> None:
        order.append(entry.worker.reader)
        timed(entry)

    monkeypatch.setattr(suite_run.CaseReader, "time", note)
    config = Config(
        ("framefeed", "pyav"),
        cases=("clips",),
        repeat=3,
        max_batches=1,
        clip_length=4,
        mode="stream",
        least_seconds=0,
    )
    Bench(config, videos[:1], tmp_path / "x.json").run(lambda *what: None)
    assert order == ["framefeed", "pyav", "pyav", "framefeed", "framefeed", "pyav"]


def test_the_command_on_a_file(
    videos: list[ComparedVideo], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.mp4"
    file.write_bytes(videos[0].path.read_bytes())
    words = ["bench", str(file), "--readers", "framefeed,pyav", "--cases", "random,every", "--batch-sizes", "4,8"]
    words += ["--repeat", "2", "--max-batches", "2", "--frame-skip", "10", "--least-seconds", "0", "-o", "a/b.json"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "mine.mp4" in out and "random" in out and "every" in out and "b.html" in out
    document = json.loads((tmp_path / "a/b.json").read_text())
    assert len(document["results"]) == 2 * 2 * 2 and all(row["wrong"] == 0 for row in document["results"])
    page = (tmp_path / "a/b.html").read_text()
    assert "<svg" in page and "mine.mp4" in page
    assert document["videos"][0]["generated"] is False
    assert main([*words, "--json", "--against", "a/b.json", "-o", "c.json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["complete"] is True and again["against"]["pairs"] == 4
    assert json.loads((tmp_path / "c.json").read_text()) == again
    assert main([*words, "--against", "none.json"]) == 2
    assert "--against none.json" in capsys.readouterr().err
    (tmp_path / "none.json").write_text("[1]")
    assert main([*words, "--against", "none.json"]) == 2
    assert "no results of `framefeed bench`" in capsys.readouterr().err


def test_the_command_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "--quick", "--cases", "clips", "--clips", str(tmp_path / "clips"), "-o", str(tmp_path / "x.json")]
    code = main(words)
    out = capsys.readouterr().out
    document = json.loads((tmp_path / "x.json").read_text())
    absent = [reader["name"] for reader in document["readers"] if not reader["usable"]]
    assert code == 0 and absent
    assert all(f"not compared: {name}: " in out for name in absent)
    assert all(f"{name}: " not in out or "pip install" in out for name in absent)
    assert {row["video"] for row in document["results"]} == {"h264_gop12", "h264_gop60"}


def test_wrong_frames_are_in_the_exit_code(
    videos: list[ComparedVideo], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE)
    words = ["bench", str(videos[0].path), "--readers", "framefeed,own_readers:OffByOne", "--cases", "clips"]
    words += ["--repeat", "1", "--max-batches", "1", "--least-seconds", "0", "-o", str(tmp_path / "x.json")]
    assert main(words) == 1
    assert "WRONG 16/16" in capsys.readouterr().out
    sys.modules.pop("own_readers", None)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--readers", "nobody"], "'nobody' is no reader; possible: framefeed"),
        (["--cases", "randon"], "expected random, single"),
        (["--devices", "tpu"], "expected cpu, cuda"),
    ],
)
def test_bad_arguments(
    words: list[str],
    what: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suite_run, "find_readers", lambda: pytest.fail("libraries were loaded first"))
    assert main(["bench", *words, "-o", str(tmp_path / "x.json")]) == 2
    assert what in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


def test_bad_batch_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "--batch-sizes", "32,0"])
    assert "expected a positive integer, got '0'" in capsys.readouterr().err


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_run, "find_readers", lambda: pytest.fail("libraries were loaded first"))
    assert main(["bench", str(tmp_path / "none.mp4"), "-o", str(tmp_path / "x.json")]) == 2
    assert "none.mp4" in capsys.readouterr().err


def test_open_video_looks_no_further_than_it_must(videos: list[ComparedVideo]) -> None:
    video = open_video(videos[0].path, "mine", lambda num_frames: 3)
    assert isinstance(video.truth, DecodedTruth) and len(video.truth) == 35
    assert video.num_frames == 48 and video.facts["gop"] == 12 and video.facts["b_frames"]


def test_ctrl_c_leaves_what_was_measured(videos: list[ComparedVideo], tmp_path: Path) -> None:
    output = tmp_path / "x.json"
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from framefeed.compare import suite\n"
        "from framefeed.cli import main\n"
        "suite.find_readers = lambda: []\n"
        "if __name__ == '__main__': sys.exit(main(sys.argv[1:]))\n"
    )
    (tmp_path / "start.py").write_text(script)
    words = ["bench", str(videos[0].path), str(videos[1].path), "--readers", "own_readers:Slow"]
    words += ["--cases", "clips,random", "--mode", "stream", "--repeat", "9", "--max-batches", "2"]
    words += ["--least-seconds", "0", "-o", str(output)]
    command = [sys.executable, str(tmp_path / "start.py"), *words]
    with subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                if output.exists() and json.loads(output.read_text())["results"]:
                    break
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    document = json.loads(output.read_text())
    assert document["complete"] is False and document["results"]
    assert all(row["error"] is None for row in document["results"])
    assert output.with_suffix(".html").read_text().count("<svg")
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]
