"""``framefeed infer`` and ``framefeed diff``: files, exit codes, and what is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from catalog.catalog_help import close_folder
from cli.conftest import Run
from framefeed.cli import main
from framefeed.infer import api
from framefeed.infer.rows import read_rows
from framefeed.testing.shape_detector import CLASSES, ShapeDetector, export, write_shape_clip

SIZE = (96, 128)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("infer")
    for seed in range(2):
        write_shape_clip(made / f"{seed}.mp4", frames=60, width=128, height=96, seed=seed, gop=20)
    export(ShapeDetector(*SIZE), made / "shapes.onnx")
    (made / "names.txt").write_text("\n".join(CLASSES))
    return made


def test_rows_are_written(run: Run, folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "found.csv"
    command = ("infer", folder, "--model", folder / "shapes.onnx", "--device", "cpu", "-o", output)
    ran = run(*command, "--classes", folder / "names.txt")
    assert (ran.code, ran.err) == (0, "")
    assert [word in ran.out for word in ("videos", "frames/s", "found.csv")] == [True] * 3
    rows = read_rows(output).to_pylist()
    assert len(rows) == 2 * 3 * 3  # every 25th of 60 frames
    assert {row["class_name"] for row in rows} == set(CLASSES)
    again = run(*command, "--classes", folder / "names.txt", "--json")
    assert (again.code, again.json["frames"], again.json["resumed_frames"]) == (0, 6, 6)
    other = run(*command)
    assert other.code == 2
    assert other.err.startswith(f"framefeed: {output}: was made, or begun, with other options: classes")
    assert other.err.count("\n") == 1
    restarted = run(*command, "--restart", "--frame-skip", "30", "--batch-size", "2", "--quiet")
    assert (restarted.code, restarted.out) == (0, "")


def test_bad_videos_are_listed(run: Run, folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    model = ("--model", folder / "shapes.onnx", "--device", "cpu")
    ran = run("infer", folder, broken, *model, "-o", tmp_path / "a.csv", "--quiet")
    assert (ran.code, ran.err) == (1, "")
    assert str(broken) in ran.out and "bad video" in ran.out
    listed = run("infer", folder, broken, *model, "-o", tmp_path / "b.csv", "--json")
    assert listed.code == 1
    assert [bad["file"] for bad in listed.json["bad"]] == [str(broken)]
    nothing = run("infer", broken, *model, "-o", tmp_path / "c.csv")
    assert (nothing.code, nothing.out) == (2, "")
    assert nothing.err.startswith(f"framefeed: {broken}: ")


@pytest.mark.parametrize(
    ("argv", "possible"),
    [
        (("infer", "x.mp4"), "--model"),
        (("infer", "x.mp4", "--model", "m.onnx"), "--output"),
        (("infer", "x.mp4", "--model", "m.onnx", "-o", "x.txt"), ".csv or .parquet"),
        (("infer", "x.mp4", "--model", "m.onnx", "-o", "x.csv", "--batch-size", "0"), "1, 2, 3"),
        (("infer", "x.mp4", "--model", "m.onnx", "-o", "x.csv", "--confidence", "2"), "from 0 to 1"),
        (("infer", "x.mp4", "--model", "m.onnx", "-o", "x.csv", "--image-size", "big"), "960x544"),
        (("infer", "x.mp4", "--model", "m.onnx", "-o", "x.csv", "--layout", "ssd"), "yolov5"),
        (("infer", "x.mp4", "--model", "m.onnx", "-o", "x.csv", "--device", "tpu"), "cuda:1"),
        (("infer", "x.mp4", "--model", "m.onnx", "-o", "x.csv", "--ray-workers", "2"), "--ray-workers needs --ray"),
        (("infer", "x.mp4", "--model", "m.onnx", "-o", "x.csv", "--ray", "--ray-workers", "4:2"), "2:16"),
        (("infer", "--model", "m.onnx", "-o", "x.csv", "--ray", "x.mp4"), "behind the videos"),
        (("infer", "--model", "m.onnx", "-o", "x.csv", "--ray", "videos/", "x.mp4"), "ray://host:10001"),
        (("diff", "a.csv"), "B"),
        (("diff", "a.csv", "b.csv", "--iou", "0"), "above 0"),
        (("diff", "a.csv", "b.csv", "--tolerance", "-1"), "0, 0.5, 2"),
    ],
)
def test_bad_arguments_say_what_is_possible(run: Run, argv: tuple[str, ...], possible: str) -> None:
    ran = run(*argv)
    assert (ran.code, ran.out) == (2, "")
    assert possible in ran.err


def test_models_that_cannot_be_used(run: Run, folder: Path, tmp_path: Path) -> None:
    for model, reason in ((tmp_path / "m.onnx", "cannot be read"), (folder / "names.txt", "unknown model type")):
        ran = run("infer", folder, "--model", model, "--device", "cpu", "-o", tmp_path / "found.csv")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"framefeed: {model}: ") and reason in ran.err
    assert list(tmp_path.iterdir()) == []


def test_models_in_the_current_folder(run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_detector.py").write_text(
        f"from framefeed.testing.shape_detector import ShapeDetector\nfind = ShapeDetector{SIZE}\n"
    )
    for name, code in (("own_syntax", "def find(:"), ("own_trouble", "raise KeyError('two\\nlines')")):
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    options = ("--image-size", "128x96", "--device", "cpu", "--quiet")
    ran = run("infer", folder, "--model", "own_detector:find", *options, "-o", "found.csv")
    assert (ran.code, ran.err) == (0, "")
    assert read_rows(tmp_path / "found.csv").num_rows == 2 * 3 * 3
    for name, reason in (("own_syntax", "SyntaxError: "), ("own_trouble", "KeyError: ")):
        ran = run("infer", folder, "--model", f"{name}:find", *options, "-o", "other.csv")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"framefeed: {name}:find: cannot import module {name} ({reason}")
        assert ran.err.count("\n") == 1


def test_folders_that_cannot_be_read_are_listed(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    videos = tmp_path / "videos"
    (videos / "closed").mkdir(parents=True)
    (videos / "a.mp4").write_bytes((folder / "0.mp4").read_bytes())
    close_folder(monkeypatch, videos / "closed")
    model = ("--model", folder / "shapes.onnx", "--device", "cpu", "--json")
    ran = run("infer", videos, videos / "**", *model, "-o", tmp_path / "a.csv")
    assert (ran.code, ran.json["videos"]) == (1, 1)
    reason = "a folder that cannot be read (Permission denied)"
    assert ran.json["bad"] == [{"file": str(videos / "closed"), "reason": reason}]
    ran = run("infer", videos / "closed", *model, "-o", tmp_path / "b.csv")
    assert (ran.code, ran.err) == (2, f"framefeed: {videos / 'closed'}: {reason}\n")


def test_interrupted(run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle, from outside; then the same command."""
    output = tmp_path / "found.csv"
    argv = ["infer", str(folder), "--device", "cpu", "--frame-skip", "1", "-o", str(output)]
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import os, signal, sys, time, torch\n"
        "from framefeed.testing.shape_detector import ShapeDetector\n"
        f"detector = ShapeDetector{SIZE}\n"
        "def model(batch):\n"
        "    time.sleep(float(os.environ.get('PAUSE', 0)))\n"
        "    return detector(batch)\n"
        f"model.image_size = {SIZE}\n"
        "if __name__ == '__main__':\n"
        "    torch.set_num_threads(1)\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    from framefeed.cli import main\n"
        "    import framefeed.infer.api as api\n"
        "    api.run.__kwdefaults__['segment_frames'] = 10\n"
        "    sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, str(slow), *argv, "--model", "slow:model"]
    slowly = {**os.environ, "PAUSE": "0.1"}
    with subprocess.Popen(command, cwd=tmp_path, env=slowly, stderr=subprocess.PIPE, text=True) as process:
        try:
            journal = tmp_path / "found.csv.work" / "journal"
            until = time.monotonic() + 30
            while time.monotonic() < until and not (journal.exists() and journal.stat().st_size):
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "framefeed: interrupted; rerun the same command to resume\n")
    assert not output.exists()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert api.run.__kwdefaults__ is not None
    monkeypatch.setitem(api.run.__kwdefaults__, "segment_frames", 10)
    ran = run(*command[2:])
    sys.modules.pop("slow", None)
    assert ran.code == 0 and "of these frames were resumed from an earlier run" in ran.out
    assert read_rows(output).num_rows == 2 * 60 * 3


def test_diff(run: Run, folder: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / "a.csv", tmp_path / "b.parquet", tmp_path / "c.csv"]
    for output, skip in zip(outputs, ("10", "10", "20"), strict=True):
        model = ("--model", str(folder / "shapes.onnx"), "--device", "cpu", "--frame-skip", skip)
        assert main(["infer", str(folder), *model, "-o", str(output), "--quiet"]) == 0
    same = run("diff", outputs[0], outputs[1])
    assert (same.code, same.err) == (0, "")
    assert same.out.endswith("the same within 1 pixels and a score of 0.01\n")
    different = run("diff", outputs[0], outputs[2], "--json")
    assert different.code == 1
    total = different.json["total"]
    assert (total["count_a"], total["count_b"], total["matched"], total["only_a"]) == (36, 18, 18, 18)
    assert "only in A" in run("diff", outputs[0], outputs[2]).out
    missing = run("diff", outputs[0], tmp_path / "missing.csv")
    assert (missing.code, missing.out) == (2, "")
    assert missing.err.startswith(f"framefeed: {tmp_path / 'missing.csv'}: ")
    assert os.path.exists(outputs[2])
