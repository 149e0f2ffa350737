"""The GPU benchmark without a GPU: clips, checks, timing, tables; and peers, with a stand-in for PyNvVideoCodec."""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
import torch

from benchmarks import harness
from benchmarks.clips import GPU_SETS, UNCLEAR, ClipSet, expected_numbers, read_numbers, write_sets
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import cases as gpu_cases
from benchmarks.gpu import peers as gpu_peers
from benchmarks.gpu.bare import Packets
from benchmarks.gpu.cases import BARE, CASES, HALF_SIZE, SHORT_EPOCH, Pace, ratios
from benchmarks.gpu.device import Device, side_by_side
from benchmarks.gpu.peers import PeerFailed, PeerProcess, PeerTask
from benchmarks.harness import OURS, Run
from benchmarks.tables import gpu_numbers
from framefeed import VideoDecoder, VideoIndex
from framefeed._util.versions import source_digest
from framefeed.compare.provenance import sources

TINY = (
    ClipSet("cameras", "hevc", 256, 144, gop=8, frames=11, b_frames=0, kilobits=600, files=2),
    ClipSet("small", "h264", 192, 128, gop=10, frames=24, b_frames=3, kilobits=400, files=2),
)


# --- a stand-in for PyNvVideoCodec --------------------------------------------------------------------------------


class FakeFrame:
    def __init__(self, data: torch.Tensor) -> None:
        self._data = data

    def __dlpack__(self, **how: Any) -> Any:
        return self._data.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()


class FakeReader:
    """What SimpleDecoder and ThreadedDecoder have in common."""

    def __init__(self, path: str, **options: Any) -> None:
        assert options == {"gpu_id": 0, "use_device_memory": True, "output_color_type": "RGBP"}
        self.reconfigure_decoder(path)

    def reconfigure_decoder(self, path: str) -> None:
        self._decoder = VideoDecoder(path, num_ffmpeg_threads=1)
        self._at = 0

    def __len__(self) -> int:
        return len(self._decoder)

    def get_batch_frames(self, count: int) -> list[FakeFrame]:
        start, self._at = self._at, min(len(self), self._at + count)
        return self._frames(list(range(start, self._at)))

    def _frames(self, numbers: list[int]) -> list[FakeFrame]:
        return [FakeFrame(frame) for frame in self._decoder.get_frames_at(numbers).data]


class FakeSimple(FakeReader):
    def get_batch_frames_by_index(self, numbers: list[int]) -> list[FakeFrame]:
        assert len(set(numbers)) == len(numbers)  # the real one leaves repeated ones out
        return self._frames(numbers)


class FakeThreaded(FakeReader):
    ended = 0

    def __init__(self, path: str, buffer_size: int, **options: Any) -> None:
        assert buffer_size >= gpu_peers.BATCH
        super().__init__(path, **options)

    def reconfigure_decoder(self, path: str) -> None:
        assert not hasattr(self, "_at") or self._at == len(self)  # nothing of the file before is left behind
        super().reconfigure_decoder(path)

    def end(self) -> None:
        type(self).ended += 1


class FakeDecoder:
    """Takes any number of packets at once, gives pictures in order as NV12 would lie, and begins anew after a flush."""

    def __init__(self, **options: Any) -> None:
        self._codec = options["codec"]
        self._begin()

    def _begin(self) -> None:
        self._context: Any = av.CodecContext.create(self._codec, "r")

    def Decode(self, packet: Any) -> list[FakeFrame]:  # noqa: N802
        data = ctypes.string_at(packet.bsl_data, packet.bsl) if packet.bsl else None
        frames = [frame for found in self._context.parse(data) for frame in self._context.decode(found)]
        if data is None:
            frames += self._context.decode(None)
            self._begin()
        return [FakeFrame(torch.from_numpy(frame.to_ndarray())) for frame in frames]


def fake_library(**changes: Any) -> Any:
    found = {
        "SimpleDecoder": FakeSimple,
        "ThreadedDecoder": FakeThreaded,
        "CreateDecoder": FakeDecoder,
        "PacketData": SimpleNamespace,
        "OutputColorType": SimpleNamespace(RGBP="RGBP", NATIVE="NATIVE"),
        "cudaVideoCodec": SimpleNamespace(H264="h264", HEVC="hevc"),
    }
    return SimpleNamespace(**{**found, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu")
    write_sets(TINY, folder)
    return folder


@pytest.fixture
def run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs the benchmark dry: returns its exit code and its results."""
    monkeypatch.setattr(gpu, "TINY_SETS", TINY)
    monkeypatch.setattr(gpu_cases, "SINGLE_THREADS", (2, 3))
    monkeypatch.setattr(gpu_cases, "COPIES", 2)
    monkeypatch.setattr(harness, "SLOW_SECONDS", 1e6)

    def call(*arguments: str) -> tuple[int, dict[str, Any]]:
        output = tmp_path / "out" / "results.json"
        always = ["--dry-run", "--clips", str(folder), "--seconds", "0.001", "--repeat", "2", "--output", str(output)]
        code = gpu.main([*always, *arguments])
        return code, json.loads(output.read_text())

    return call


def rows(document: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {
        (result["case"], result["on"], row["name"]): row for result in document["results"] for row in result["entries"]
    }


# --- clips --------------------------------------------------------------------------------------------------------


def test_sets_are_as_asked_for() -> None:
    assert [(clips.name, clips.codec, clips.width, clips.height, clips.gop, clips.frames) for clips in GPU_SETS] == [
        ("cameras", "hevc", 1600, 900, 30, 300),
        ("long", "h264", 1920, 1080, 250, 500),
        ("small", "h264", 640, 360, 30, 600),
    ]
    assert all(clips.files == 6 for clips in GPU_SETS) and GPU_SETS[0].b_frames == 0 and GPU_SETS[1].b_frames == 3


@pytest.mark.parametrize("clips", TINY)
def test_clips_can_be_checked_and_have_exact_groups(clips: ClipSet, folder: Path) -> None:
    files = write_sets([clips], folder)[clips.name]
    for number, path in enumerate(files):
        frames = VideoDecoder(path).get_all_frames().data
        assert (read_numbers(frames) == expected_numbers(number, range(clips.frames))).all()
        small = torch.nn.functional.interpolate(frames, size=(112, 112), mode="bilinear", antialias=True)
        assert (read_numbers(small.half() / 255) == expected_numbers(number, range(clips.frames))).all()
        table = VideoIndex.scan(path).packets
        sizes = np.unique(table.start[table.frames], return_counts=True)[1].tolist()
        full, rest = divmod(clips.frames, clips.gop)
        assert sizes == [clips.gop] * full + [rest] * bool(rest)
    packets = Packets(files, clips.codec)
    assert [len(group) for group in packets.groups] == sizes * len(files)
    assert packets.names[: len(sizes)] == [(0, first) for first in range(0, clips.frames, clips.gop)]
    assert (read_numbers(torch.full((1, 3, 144, 256), 128, dtype=torch.uint8)) == UNCLEAR).all()


def test_clips_are_written_once_and_by_several_processes(folder: Path, tmp_path: Path) -> None:
    files = write_sets(TINY, folder)["small"]
    stamps = [path.stat().st_mtime_ns for path in files]
    ready: list[int] = []
    assert write_sets(TINY, folder, workers=2, done=ready.append)["small"] == files
    assert ready == [4] and stamps == [path.stat().st_mtime_ns for path in files]
    anew = write_sets(TINY[1:], tmp_path, workers=2)["small"]
    assert [path.read_bytes() for path in anew] == [path.read_bytes() for path in files]


# --- all of it ----------------------------------------------------------------------------------------------------


def test_what_is_missing_is_measured_later(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--no-peers", "--only", "singles", "small")[0] == 0
    code, document = run("--no-peers", "--only", "singles", "shuffle", "--go-on")
    assert code == 0 and len(document["earlier"]) == 1
    assert {each["name"] for each in document["configuration"]["sets"]} == {clips.name for clips in TINY}
    assert [(result["case"], result["on"]) for result in document["results"]] == [
        ("singles", "small"),
        *(
            (case, clips.name)
            for case in ("shuffle", "singles")
            for clips in TINY
            if (case, clips.name) != ("singles", "small")
        ),
    ]
    document["versions"]["torch"] = "0"
    (output,) = (word for word in document["command"].split() if word.endswith("results.json"))
    Path(output).write_text(json.dumps(document))
    assert gpu.main(["--dry-run", "--go-on", "--output", output]) == 2
    assert "was measured with another version; omit --go-on to measure all" in capsys.readouterr().err


def test_all_cases_run_with_a_library(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", fake_library())
    monkeypatch.setattr(FakeThreaded, "ended", 0)
    code, document = run("--endurance", "8")
    assert code == 0 and document["complete"] and "left_out" not in document
    assert [(result["case"], result["on"]) for result in document["results"]] == [
        (case, clips.name) for case in CASES for clips in TINY
    ]
    for key, row in rows(document).items():
        assert row["wrong"] == 0, key
        if key[0] == "random" and key[2] == "ThreadedDecoder":
            assert row["error"].startswith("n/a")
            continue
        assert row["error"] is None, key
        assert row["min"] <= row["median"] <= row["max"] and len(row["rates"]) == 2
    found = rows(document)
    assert set(found["in-order", "cameras", BARE]["tried"]) == {"each packet", "in pieces"}
    assert ("in-order", "small", "SimpleDecoder, 6 threads") in found
    assert found["in-order", "small", SHORT_EPOCH]["decoded_per_delivered"] == 1.0
    assert set(document["ratios"]) == {"cameras", "small"} and len(document["ratios"]["small"]) == 9
    assert FakeThreaded.ended == 2 * (1 + 6)
    assert all(result["decoders_created_after_warm_up"] == 0 for result in document["results"])
    assert document["endurance"]["batches"] == 8 and document["endurance"]["wrong"] == 0
    assert len(document["endurance"]["samples_mb"]) == 4
    assert document["versions"]["framefeed"] and document["configuration"]["sets"][0]["bytes"] > 0
    assert not re.search(r'"/(?!/)', json.dumps(document["configuration"]))
    text = gpu_numbers(document)
    assert text.count("\n| ") == 17
    missing = [line for line in text.splitlines() if "| - |" in line]
    assert len(missing) == 1 and "number of epochs known" in missing[0]  # each of its timings takes two epochs
    assert f"| {found['in-order', 'cameras', OURS]['median']:,.0f} |" in text


def test_without_the_library_the_rest_runs(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", None)
    code, document = run("--only", "in-order", "random", "cameras")
    assert code == 0 and {result["on"] for result in document["results"]} == {"cameras"}
    for (_, _, name), row in rows(document).items():
        if name.startswith(OURS):
            assert row["error"] is None and row["median"] > 0
        else:
            assert "PyNvVideoCodec" in row["error"] or row["error"].startswith("n/a")
            assert "median" not in row
    assert set(document["ratios"]["cameras"]) == {"half224/full"}
    assert "| - |" in gpu_numbers(document)


def test_wrong_and_failing_peers_are_reported(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shifted(FakeSimple):
        def _frames(self, numbers: list[int]) -> list[FakeFrame]:
            return super()._frames([(number + 1) % len(self) for number in numbers])

    class Failing(FakeThreaded):
        def get_batch_frames(self, count: int) -> list[FakeFrame]:
            raise RuntimeError("no decoder\nfor you")

    library = fake_library(SimpleDecoder=Shifted, ThreadedDecoder=Failing)
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", library)
    code, document = run("--only", "in-order", "random", "small")
    found = rows(document)
    assert code == 0
    assert found["in-order", "small", "SimpleDecoder, 1 thread"]["wrong"] > 0
    assert "wrong frames" in found["in-order", "small", "SimpleDecoder, 1 thread"]["error"]
    assert found["in-order", "small", "ThreadedDecoder, 1 thread"]["error"] == "RuntimeError: no decoder for you"
    assert found["random", "small", "SimpleDecoder, 6 threads"]["wrong"] == 6 * 2 * TINY[1].frames
    assert all("median" not in row for key, row in found.items() if "Decoder" in key[2])
    assert set(document["ratios"]["small"]) == {"in_order/bare", "in_order_short_epochs/bare", "half224/full"}
    assert "wrong frames" in gpu_numbers(document)


def test_wrong_and_unreadable_pictures_of_bare_decoders(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Swapping(FakeDecoder):
        def Decode(self, packet: Any) -> list[FakeFrame]:  # noqa: N802
            return super().Decode(packet)[::-1]

    class Hiding(FakeDecoder):
        def Decode(self, packet: Any) -> list[FakeFrame]:  # noqa: N802
            return [None for _ in super().Decode(packet)]  # type: ignore[misc]

    class Losing(FakeDecoder):
        def Decode(self, packet: Any) -> list[FakeFrame]:  # noqa: N802
            return super().Decode(packet)[1:]

    found = []
    for fake in (Swapping, Hiding, Losing):
        monkeypatch.setitem(sys.modules, "PyNvVideoCodec", fake_library(CreateDecoder=fake))
        found.append(rows(run("--no-peers", "--only", "in-order", "small")[1])["in-order", "small", BARE])
    assert found[0]["wrong"] > 0 or "wrong frames" in found[0]["tried"]["in pieces"]
    assert found[1]["median"] > 0 and "counted, not read" in found[1]["note"]
    assert found[2]["wrong"] > 0 and "median" not in found[2]


def test_peers_may_go_wrong_while_they_are_timed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tiring(FakeSimple):
        calls = 0

        def get_batch_frames_by_index(self, numbers: list[int]) -> list[FakeFrame]:
            Tiring.calls += 1
            if Tiring.calls > 4:
                raise RuntimeError("tired")
            return super().get_batch_frames_by_index(numbers)

    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", fake_library(SimpleDecoder=Tiring))
    _, document = run("--only", "random", "small")
    assert rows(document)["random", "small", "SimpleDecoder, 1 thread"]["error"] == "RuntimeError: tired"


def test_wrong_frames_of_ours_fail(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.ours.expected_numbers", lambda file, frames: np.zeros((len(frames), 2)))
    code, document = run("--no-peers", "--only", "random", "small")
    assert code == 1 and all(row["wrong"] > 0 for row in rows(document).values())


def test_decoders_made_after_warming_up_fail(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter(range(100))
    monkeypatch.setattr(Device, "decoders_created", lambda self: next(counts))
    code, document = run("--only", "singles", "small")
    assert code == 1 and document["results"][0]["decoders_created_after_warm_up"] == 1


def test_a_run_that_is_cut_leaves_results(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, cases = gpu_cases.measure, []

    def cut(case: str, *rest: Any) -> dict[str, Any]:
        cases.append(case)
        if len(cases) == 2:
            raise KeyboardInterrupt
        return measure(case, *rest)

    monkeypatch.setattr(gpu, "measure", cut)
    with pytest.raises(KeyboardInterrupt):
        run("--no-peers", "--only", "singles")
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert not document["complete"] and len(document["results"]) == 1


def test_other_code_is_not_mixed_in(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_cases, "SINGLE_THREADS", (2,))
    chosen = ("--no-peers", "--only", "singles")
    code, document = run(*chosen, "small")
    assert code == 0 and sources(document) == {"singles, small": source_digest()}
    code, document = run(*chosen, "cameras", "--go-on", "--endurance", "2")
    assert code == 0 and set(sources(document)) == {"singles, small", "singles, cameras", "endurance"}
    assert set(sources(document).values()) == {source_digest()}
    for part in (document["results"][0], document["results"][1], document["endurance"]):
        for digest in ("another", None):
            with monkeypatch.context() as patch:
                patch.setitem(part, "source", digest)
                (tmp_path / "out" / "results.json").write_text(json.dumps(document))
            before = (tmp_path / "out" / "results.json").read_text()
            assert run(*chosen, "--go-on")[0] == 2
            assert "was measured with other code" in capsys.readouterr().err
            assert (tmp_path / "out" / "results.json").read_text() == before


def test_cases_that_come_too_late_are_left_out(run: Any) -> None:
    code, document = run("--minutes", "0.00001", "--only", "singles")
    assert code == 0 and document["results"] == [] and len(document["left_out"]) == 2
    assert gpu_numbers(document) == ""


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert gpu.main([]) == 2
    assert "this needs a GPU" in capsys.readouterr().err


# --- parts --------------------------------------------------------------------------------------------------------


def test_timings_shrink_to_end_in_time() -> None:
    now = time.perf_counter()
    assert Pace(2.0, 5, [6, 6], float("inf")).next_case(6) == 2.0
    seconds = Pace(2.0, 5, [6, 6], now + 12 * gpu_cases.SECONDS_FOR_CHECKS + 60).next_case(6)
    assert seconds == pytest.approx(1.0, abs=0.01)
    assert Pace(2.0, 5, [6], now + 1).next_case(6) == gpu_cases.LEAST_SECONDS
    assert Pace(0.02, 5, [6], now + 1).next_case(6) == 0.02
    assert Pace(2.0, 5, [6], now - 1).next_case(6) is None


def test_threads_are_timed_over_whole_pieces() -> None:
    def work(thread: int) -> int:
        time.sleep(0.01 * (1 + thread))
        return 10

    timed = side_by_side(work, 2, 0.1, Device())
    assert timed.seconds >= 0.1 and timed.frames >= 20
    assert timed.frames / timed.seconds <= timed.rate <= 1000 + 500

    def fail(thread: int) -> int:
        if thread == 1:
            raise RuntimeError("thread 1")
        time.sleep(0.001)
        return 1

    with pytest.raises(RuntimeError, match="thread 1"):
        side_by_side(fail, 3, 60.0, Device())


def test_ratios_are_of_medians() -> None:
    def row(name: str, median: float | None) -> dict[str, Any]:
        return {"name": name} if median is None else {"name": name, "median": median}

    entries = [
        row(OURS, 90.0),
        row(BARE, 100.0),
        row(HALF_SIZE, 99.0),
        row(SHORT_EPOCH, 95.0),
        row("SimpleDecoder, 1 thread", None),
    ]
    found = ratios([{"case": "in-order", "on": "small", "entries": entries}])
    assert found == {"small": {"in_order/bare": 0.9, "in_order_short_epochs/bare": 0.95, "half224/full": 1.1}}


def answer() -> Callable[..., Any]:
    """For another process: does as it is told."""

    def call(what: str, task: Any, *arguments: Any) -> Any:
        if what == "raise":
            raise ValueError("bad\nluck")
        if what == "die":
            os._exit(3)
        if what == "hang":
            time.sleep(60)
        return Run(*arguments), task, os.getpid()

    return call


def test_a_process_for_peers_survives_them() -> None:
    process = PeerProcess(answer, answer_seconds=30.0)
    task = PeerTask("SimpleDecoder", "random", 1, ("a",), 10)
    try:
        run, same, first = process.call("run", task, 10, 1.0, 10.0)
        assert run == Run(10, 1.0, 10.0) and same == task and first != os.getpid()
        with pytest.raises(PeerFailed, match="ValueError: bad luck"):
            process.call("raise", task)
        assert process.call("run", task, 1, 1.0, 1.0)[2] == first
        with pytest.raises(PeerFailed, match="died with code 3"):
            process.call("die", task)
        assert process.call("run", task, 1, 1.0, 1.0)[2] != first
        process._answer_seconds = 0.2
        with pytest.raises(PeerFailed, match="no answer"):
            process.call("hang", task)
    finally:
        process.close()
