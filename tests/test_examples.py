"""The examples run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from framefeed.bench.camera_clips import write_camera_clips

ROOT = Path(__file__).parent.parent
SEPARATION = ROOT / "examples" / "separation_decode"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drive")
    return write_camera_clips(folder, clips=4, cameras=2, frames=12, width=96, height=64, gop=6, kilobits=200)


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_separation_decode(index: Path, tmp_path: Path) -> None:
    ran = _run(SEPARATION / "main.py", "--json", "--index_file", index, "--group_num", "2", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert summary["frames"] == 4 * 2 * 12
    assert summary["decoded_per_delivered"] == 1.0
    assert summary["packets_kept"] > 0


def test_separation_decode_on_two_ranks(index: Path, tmp_path: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    arguments = ["--index_file", str(index), "--group_num", "2", "--num_workers", "1", "--json"]
    ran = _run(*launch, SEPARATION / "main.py", *arguments, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    (summary,) = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert summary["ranks"] == 2
    assert summary["frames"] == 2 * 2 * 12  # of the first rank: half of the clips


def test_separation_decode_says_what_is_wrong(index: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nothing.json"
    ran = _run(SEPARATION / "main.py", "--index_file", missing, cwd=tmp_path)
    assert ran.returncode == 1
    assert str(missing) in ran.stderr and "Traceback" not in ran.stderr
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"videos": {"clip00": 12}}))
    ran = _run(SEPARATION / "main.py", "--index_file", wrong, cwd=tmp_path)
    assert ran.returncode == 1
    assert "clip00" in ran.stderr and "Traceback" not in ran.stderr


def test_tables(index: Path, tmp_path: Path) -> None:
    output = tmp_path / "tables.json"
    arguments = [
        "--index_file",
        str(index),
        "--device",
        "cpu",
        "--group_num",
        "2",
        "--num_workers",
        "1",
        "--repeat",
        "1",
    ]
    ran = _run(SEPARATION / "tables.py", *arguments, "--warm_up", "0", "--loader", "--output", output, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(output.read_text())
    assert document["medians"].keys() == {"stream, cache", "stream, no cache", "random"}
    assert all(rates["1"] > 0 for rates in document["medians"].values())
    assert document["video_loader"].keys() == {"stream", "random"}
    kept = {run["case"]: run["packets_kept"] for run in document["runs"]}
    assert kept["stream, no cache"] == 0 < kept["stream, cache"]
    assert "3,270" in ran.stdout
