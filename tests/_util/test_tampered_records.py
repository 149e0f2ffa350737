"""States, journals and records that were changed: the error that names the file, or what they said before."""

from __future__ import annotations

import json
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from framefeed import StateError, VideoDataset, VideoLoader, infer
from framefeed import prepare as preparing
from framefeed.infer.execution.work import BadFrame
from framefeed.infer.journal import Done, Journal
from framefeed.infer.output import Output
from framefeed.infer.rows import FOUND
from framefeed.loader.state import read_state
from framefeed.testing import samples
from framefeed.testing.shape_detector import ShapeDetector


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    samples.write_clip(folder / "clip.mp4", frames=12, gop=4)
    return folder


def mutate(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    place = rng.randrange(len(data))
    kind = rng.choice(["flip", "cut", "drop", "text", "insert"])
    if kind == "flip":
        changed[place] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del changed[place:]
    elif kind == "drop":
        del changed[place : place + rng.randrange(1, 30)]
    elif kind == "text":
        word = rng.choice([b"null", b"-1", b"1e999", b'"x"', b"[]", b"{}", b"9" * 30, b"true", b"[" * 5000])
        end = min((at for at in (data.find(sign, place) for sign in (b",", b"}", b"]")) if at >= 0), default=place)
        begin = max(data.rfind(sign, 0, place) for sign in (b":", b"[", b",")) + 1
        changed[begin:end] = word
    else:
        changed[place:place] = rng.randbytes(rng.randrange(1, 20))
    return bytes(changed)


# --- the loader's state -----------------------------------------------------------------------------------------------


def test_states(videos: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.json"

    def loader() -> VideoLoader:
        return VideoLoader(VideoDataset(videos / "clip.mp4"), batch_size=2, seed=3)

    batches = iter(first := loader())
    next(batches), next(batches)
    first.save_state(path)
    state, data = first.state_dict(), path.read_bytes()
    refused = 0
    for seed in range(300):
        path.write_bytes(mutate(random.Random(seed), data))
        second = loader()
        try:
            second.load_state(path)
        except StateError as error:
            assert str(path) in str(error)
            assert second.state_dict()["batch"] == 0
            refused += 1
        else:
            assert second.state_dict() == state and read_state(path) == state
    assert refused > 250
    for batch in (100, 10**12):
        path.write_text(json.dumps({**state, "batch": batch}))
        with pytest.raises(StateError, match=r"state\.json: .*batches are done, more than the epoch has"):
            loader().load_state(path)


# --- runs of models ---------------------------------------------------------------------------------------------------


def rows(videos: list[int], frames: list[int], **more: Any) -> pa.Table:
    count = len(videos)
    columns: dict[str, Any] = {"video": videos, "frame_index": frames, "class": [0] * count, "score": [0.5] * count}
    columns |= {name: [1.0] * count for name in ("x1", "y1", "x2", "y2")} | more
    return pa.table([pa.array(columns[field.name], field.type) for field in FOUND], FOUND)


def test_random_damage_of_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path))
    written = [Done(str(n), rows([0], [n]), n + 1, [BadFrame(0, n, "why")] * (n % 2)) for n in range(4)]
    for done in written:
        journal.add(done)
    journal.close()
    data = path.read_bytes()
    for seed in range(300):
        path.write_bytes(mutate(random.Random(seed), data))
        journal = Journal(str(path))
        for done in written:
            if done.key in journal:
                read = journal.read(done.key)
                assert (read.num_frames, read.bad) == (done.num_frames, done.bad) and read.found.equals(done.found)
        journal.close()


def record(said: Any, table: bytes) -> bytes:
    text = json.dumps(said).encode()
    return struct.pack("<4sIII", b"FFI1", len(text), len(table), zlib.crc32(table, zlib.crc32(text))) + text + table


SAID = {"key": "a", "num_frames": 1, "bad": [], "classes": []}


@pytest.mark.parametrize(
    "change",
    [{"key": 1}, {"num_frames": -1}, {"num_frames": "x"}, {"bad": [1]}, {"bad": [[0, 1]]}, {"bad": [[-1, 0, ""]]}]
    + [{"classes": [1]}, {"classes": None}, {"bad": None}],
)
def test_records_with_their_checksum(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "journal"
    table = Done("a", rows([0], [0]), 1).to_bytes()
    path.write_bytes(record(SAID | change, b"") + table)
    journal = Journal(str(path))
    assert len(journal) == 0
    journal.close()


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    "table",
    [
        b"",
        b"nonsense",
        stream(rows([0], [0]))[:-40],
        stream(rows([0], [0]), compression="zstd"),
        stream(rows([0], [0]).drop_columns(["score"])),
        stream(rows([0], [0]).set_column(0, "video", pa.array(["x"]))),
        stream(rows([0], [0]).set_column(1, "frame_index", pa.array([None], pa.int64()))),
    ],
)
def test_rows_with_their_checksum(table: bytes, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(record(SAID, table))
    journal = Journal(str(path))
    if table:
        with pytest.raises(StateError, match=r"journal: is damaged"):
            journal.read("a")
    journal.close()


def test_a_journal_that_declares_much(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(struct.pack("<4sIII", b"FFI1", 2**32 - 1, 2**32 - 1, 0) + b"{}")
    journal = Journal(str(path))
    assert len(journal) == 0
    journal.close()


@pytest.mark.parametrize("table", [rows([1], [0]), rows([-1], [0]), rows([0], [12]), rows([0], [-1])])
def test_rows_of_no_frame(table: pa.Table, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a run had written them."""
    output = tmp_path / "d.csv"

    model = ShapeDetector(96, 128)
    monkeypatch.setattr(Done, "to_bytes", lambda done: record(SAID | {"key": done.key}, stream(table)))
    with pytest.raises(StateError, match=r"journal: is damaged"):
        infer.run([videos / "clip.mp4"], model, output=output, device="cpu", image_size=(96, 128))
    assert not output.exists()


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"1", b'{"version": 1}', b"[" * 50_000, b'{"version": 1, "options": 1, "videos": {}}']
    + [b'{"version": 1, "options": {}, "videos": {"a": 1}}', b'{"version": 1, "options": {}, "videos": []}']
    + [b'{"version": 1, "options": {}, "videos": {}, "summary": {"num_rows": "x"}}', b"\xff\xfe"],
)
def test_records_of_runs(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("rows")
    (tmp_path / "d.csv.run.json").write_bytes(content)
    with pytest.raises(StateError, match=r"d\.csv\.run\.json"):
        Output(path, {}).begin({"a": (1, 2)})
    Output(path, {}, restart=True).close()


# --- prepared folders -------------------------------------------------------------------------------------------------

PREPARED: dict[str, Any] = {"codec": "h264", "gop": 4, "force": True, "workers": 1, "progress": False}


@pytest.fixture(scope="module")
def prepared(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "out"
    preparing.run(videos, out, **PREPARED)
    return out


def _file(name: str) -> Callable[[Any], Any]:
    def change(found: Any) -> Any:
        found["videos"][0]["outputs"][0]["file"] = name
        return found

    return change


RECORDS: list[Callable[[Any], Any]] = [
    _file("../../victim"),
    _file("/victim"),
    _file(""),
    lambda found: {**found, "videos": None},
    lambda found: {**found, "videos": [1]},
    lambda found: {**found, "videos": [{}]},
    lambda found: {**found, "options": None},
    lambda found: {**found, "videos": [{**found["videos"][0], "fingerprint": ["x", 1]}]},
    lambda found: {**found, "videos": [{**found["videos"][0], "stem": "../x"}]},
    lambda found: {**found, "videos": [{**found["videos"][0], "warnings": [1]}]},
    lambda found: [found],
]


@pytest.mark.parametrize("change", RECORDS)
def test_records_of_prepared_folders(
    change: Callable[[Any], Any], prepared: Path, videos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a" / "out"
    shutil.copytree(prepared, out)
    (tmp_path / "victim").write_text("untouched")
    (out / "prepared.json").write_text(json.dumps(change(json.loads((out / "prepared.json").read_text()))))
    with pytest.raises(StateError, match=r"prepared\.json"):
        preparing.run(videos, out, **PREPARED)
    if change is RECORDS[0]:  # each run takes a second
        assert len(preparing.run(videos, out, restart=True, **PREPARED).videos) == 1
    assert (tmp_path / "victim").read_text() == "untouched"


BEGIN = {"begin": {"version": 1, "options": {}, "continues": False}}
LINES: list[list[Any]] = [
    [{"begin": 1}],
    [{"begin": {"continues": False}}, {"claim": ["a"]}],
    [BEGIN, {"remove": ["../../victim"]}],
    [BEGIN, {"remove": [1]}],
    [BEGIN, {"claim": 1}],
    [BEGIN, {"done": {}}],
    [BEGIN, {"done": [1]}],
]


@pytest.mark.parametrize("lines", LINES)
def test_journals_of_prepared_folders(lines: list[Any], videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    (out / ".prepare").mkdir(parents=True)
    (tmp_path / "victim").write_text("untouched")
    (out / ".prepare" / "journal").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(StateError, match=r"journal: is damaged"):
        preparing.run(videos, out, **PREPARED)
    assert (tmp_path / "victim").read_text() == "untouched"
    if lines is LINES[2]:
        assert len(preparing.run(videos, out, restart=True, **PREPARED).videos) == 1
    assert (tmp_path / "victim").read_text() == "untouched"
