"""Files appear as a whole, and no link that was planted beside them is followed."""

from __future__ import annotations

import ast
import multiprocessing
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import framefeed
from framefeed import Catalog, CatalogError, OutputError, StateError
from framefeed import prepare as preparing
from framefeed._util.atomic_write import MAX_NAME, atomic_file, atomic_path, make_own_folder, open_own, write
from framefeed._util.file_lock import open_locked
from framefeed.cli import main
from framefeed.infer.output import Output
from framefeed.loader.state import read_state, write_state
from framefeed.store.store import pack
from framefeed.testing import samples

ROOT = Path(framefeed.__file__).parent

# Where files are written in another way than by `framefeed._util.atomic_write`, and why that is safe.
ELSEWHERE = {
    ("_util/atomic_write.py", "open"): "the helper itself",
    ("_util/atomic_write.py", "os.open"): "the helper itself",
    ("_util/atomic_write.py", "os.replace"): "the helper itself",
    ("catalog/build.py", "open"): "a random name, exclusively: whether the folder can be written to",
    ("testing/samples.py", "av.open"): "in atomic_path",
    ("prepare/encoding/write.py", "av.open"): "in a new folder that others cannot write to",
    ("prepare/encoding/write.py", "open"): "for fsync, what was just written there",
    ("compare/reader_process.py", "write_text"): "/proc/self/clear_refs",
    ("cli/__init__.py", "os.open"): "/dev/null",
    ("testing/shape_detector.py", "save"): "where atomic_path says",
    ("testing/shapes_onnx.py", "save"): "where atomic_path says",
}
WRITERS = ("write_text", "write_bytes", "touch", "rename", "symlink_to", "hardlink_to", "savez", "imwrite", "tofile")
FORBIDDEN: tuple[str, ...] = (
    "os.replace",
    "os.rename",
    "os.link",
    "os.symlink",
    "os.mkfifo",
    "shutil.move",
    "shutil.copy",
)
FORBIDDEN += ("shutil.copyfile", "shutil.copy2", "tempfile.mktemp", "tempfile.NamedTemporaryFile", "os.truncate")


def _writes(call: ast.Call) -> str | None:
    """The name of a call that writes to a file by its name, None for others."""
    name = ast.unparse(call.func)
    last = name.rsplit(".", 1)[-1]
    texts = [node.value for node in (*call.args, *(k.value for k in call.keywords)) if isinstance(node, ast.Constant)]
    mode = any(isinstance(text, str) and 0 < len(text) < 4 and set(text) <= set("rwaxb+t") for text in texts)
    if name == "os.open":
        return None if "O_RDONLY" in ast.unparse(call) else name
    if name in ("av.open", "zipfile.ZipFile", "tarfile.open"):
        return name if "w" in texts or "a" in texts else None
    if last == "open" and mode:
        return "open" if any(set(str(text)) & set("wax+") for text in texts if isinstance(text, str)) else None
    if name in FORBIDDEN:
        return name
    if name.endswith(".replace") and len(call.args) == 1 and not call.keywords and name != "dataclasses.replace":
        return "replace"  # of a Path: that of texts has two arguments
    if last == "save" and call.args:
        return "save"
    return last if last in WRITERS else None


def test_files_are_written_in_one_place() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and (name := _writes(node)):
                found.add((path.relative_to(ROOT).as_posix(), name))
    assert found == set(ELSEWHERE)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ('open(path, "w")', "open"),
        ('path.open("ab")', "open"),
        ('open(path, mode="r+")', "open"),
        ("part.replace(path)", "replace"),
        ("os.open(path, os.O_RDWR | os.O_CREAT)", "os.open"),
        ('av.open(path, "w", format)', "av.open"),
        ('open(path, "rb")', None),
        ('text.replace("a", "b")', None),
        ("dataclasses.replace(a, b=1)", None),
    ],
)
def test_the_walk_sees_writes(code: str, name: str | None) -> None:
    call = ast.parse(code).body[0]
    assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
    assert _writes(call.value) == name


def test_no_module_makes_temporary_names_of_its_own() -> None:
    texts = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith((".part", ".tmp"))
        if len(node.value) < 40
    }
    # The packet store's shards, which are continued; names of the helper that are recognised.
    assert texts == {"_util/atomic_write.py", "source/shards.py", "store/found.py", "catalog/parts.py"}


# --- the helper -----------------------------------------------------------------------------------------------


def test_modes_links_and_failures(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    target = tmp_path / "target"
    target.symlink_to(victim)
    before = os.umask(0o027)
    try:
        write(target, "new")
        with atomic_path(tmp_path / "a" / "b.bin") as part:
            assert stat.S_IMODE(part.parent.stat().st_mode) == 0o700
            part.write_bytes(b"x")
    finally:
        os.umask(before)
    assert victim.read_text() == "untouched" and not target.is_symlink() and target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "a" / "b.bin").stat().st_mode) == 0o640
    with pytest.raises(KeyError), atomic_file(target, sync=True) as file:
        file.write(b"half")
        raise KeyError
    with pytest.raises(KeyError), atomic_path(target) as part:
        part.write_bytes(b"half")
        raise KeyError
    assert target.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["a", "target", "victim"] and os.listdir(tmp_path / "a") == ["b.bin"]
    long = tmp_path / ("é" * (MAX_NAME // 2))
    write(long, b"y")
    assert long.read_bytes() == b"y"


def test_own_files_and_folders_are_no_links(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    planted = tmp_path / "planted"
    plants: list[Callable[[], None]] = [
        lambda: planted.symlink_to(victim),
        lambda: planted.symlink_to(tmp_path / "new"),
        lambda: os.link(victim, planted),
        lambda: os.mkfifo(planted),
    ]
    for plant in plants:
        plant()
        with pytest.raises(OSError):
            open_own(planted)
        with pytest.raises(OSError):
            open_locked(planted)
        planted.unlink()
    (tmp_path / "folder").mkdir()
    planted.symlink_to(tmp_path / "folder")
    with pytest.raises(OSError, match="link"):
        make_own_folder(planted)
    assert victim.read_text() == "untouched" and not (tmp_path / "new").exists()


def _write_often(path: str, letter: str, barrier: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    for _ in range(200):
        write(path, letter * 10_000)


def test_two_processes_write_one_file(tmp_path: Path) -> None:
    target = tmp_path / "both"
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    writers = [context.Process(target=_write_often, args=(str(target), letter, barrier)) for letter in "ab"]
    for writer in writers:
        writer.start()
    barrier.wait()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        if target.exists():
            seen.add(target.read_text())
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert seen <= {"a" * 10_000, "b" * 10_000} and os.listdir(tmp_path) == ["both"]


# --- names that could be known beforehand ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    samples.write_clip(folder / "clip.mp4", frames=8, gop=4)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "victim"
    path.write_text("untouched")
    yield path
    assert path.read_text() == "untouched"


def _plant(victim: Path, *names: Path) -> None:
    for name in names:
        name.parent.mkdir(parents=True, exist_ok=True)
        name.symlink_to(victim)


def test_benchmark(videos: Path, victim: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "d"
    _plant(victim, folder / ".b.json.part", folder / ".b.html.part", folder / "b.part", folder / "b.html")
    words = ["bench", "--readers", "pyav", "--quick", "-o", str(folder / "b.json"), str(videos / "clip.mp4")]
    assert main(words) == 0, capsys.readouterr()
    assert not (folder / "b.json").is_symlink() and "<html" in (folder / "b.html").read_text()


def test_state(victim: Path, tmp_path: Path) -> None:
    name = f".s.json.{os.getpid()}-{threading.get_ident()}.tmp"
    _plant(victim, tmp_path / name, tmp_path / "s.json")
    write_state(tmp_path / "s.json", {"version": 1})
    assert read_state(tmp_path / "s.json") == {"version": 1}
    assert (tmp_path / name).is_symlink()


def test_clip(victim: Path, tmp_path: Path) -> None:
    _plant(victim, tmp_path / f".c.{os.getpid()}.part.mp4", tmp_path / "c.mp4")
    samples.write_clip(tmp_path / "c.mp4", frames=2)
    assert len(framefeed.VideoDecoder(tmp_path / "c.mp4")) == 2


def test_frames(videos: Path, victim: Path, tmp_path: Path) -> None:
    _plant(victim, tmp_path / "out" / "clip_000001.png")
    assert main(["frames", str(videos / "clip.mp4"), "--at", "1", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "clip_000001.png").read_bytes().startswith(b"\x89PNG")


def test_catalog(videos: Path, victim: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "c.arrow.parts").symlink_to(other)
    build: Callable[[], object] = lambda: Catalog.build(videos, tmp_path / "c.arrow", progress=False)  # noqa: E731
    with pytest.raises(CatalogError, match="link"):
        build()
    assert os.listdir(other) == []
    (tmp_path / "c.arrow.parts").unlink()
    assert len(Catalog.build(videos, tmp_path / "c.arrow", progress=False)) == 1


def test_store(videos: Path, victim: Path, tmp_path: Path) -> None:
    catalog = Catalog.build(videos, tmp_path / "c.arrow", progress=False)
    folder = tmp_path / "store"
    _plant(victim, folder / "packets-00000.bin.part", folder / "packets-00001.bin.part")
    packed = pack(catalog, folder, progress=False)
    assert packed.num_new == 1 and not list(folder.glob("*.part"))
    again = tmp_path / "again"
    _plant(victim, again / "unfinished.journal")
    with pytest.raises(CatalogError, match="cannot be written"):
        pack(catalog, again, progress=False)


def test_prepare(videos: Path, victim: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    work = out / ".prepare"
    _plant(victim, work / "journal.new", work / "record.new", work / f"{os.getpid()}-0.mp4", out / "prepared.json.tmp")
    preparing.run(videos, out, codec="h264", gop=2, force=True, workers=1, progress=False)
    assert len(framefeed.VideoDecoder(out / "clip.mp4")) == 8
    other = tmp_path / "other"
    other.mkdir()
    second = tmp_path / "second"
    second.mkdir()
    (second / ".prepare").symlink_to(other)
    with pytest.raises(OutputError, match="link"):
        preparing.run(videos, second, codec="h264", gop=2, force=True, workers=1, progress=False)
    _plant(victim, tmp_path / "third" / ".prepare" / "journal")
    with pytest.raises(OutputError):
        preparing.run(videos, tmp_path / "third", codec="h264", gop=2, force=True, workers=1, progress=False)
    assert os.listdir(other) == []


def test_infer(victim: Path, tmp_path: Path) -> None:
    import pyarrow as pa

    from framefeed.infer.rows import COLUMNS

    work = tmp_path / "d.csv.work"
    _plant(victim, work / "record.tmp", work / "rows.tmp", tmp_path / "d.csv.run.json.tmp")
    output = Output(tmp_path / "d.csv", {"a": 1})
    assert not output.begin({"v.mp4": (1, 2)})
    schema = COLUMNS.remove(COLUMNS.get_field_index("class_name"))
    with output.rows(schema) as rows:
        rows.write(pa.table([np.zeros(1).astype(str), [0], *[[0.0]] * 6, [1]], schema=schema))
    output.finish({"v.mp4": (1, 2)}, {}, complete=True)
    output.close()
    assert (tmp_path / "d.csv").read_text().startswith('"video"') and not work.exists()
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "e.csv.work").symlink_to(other)
    with pytest.raises(OutputError, match="link"):
        Output(tmp_path / "e.csv", {"a": 1})
    _plant(victim, tmp_path / "f.csv.work" / "journal")
    with pytest.raises((OutputError, StateError)):
        Output(tmp_path / "f.csv", {"a": 1})
    assert os.listdir(other) == []
