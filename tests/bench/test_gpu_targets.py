"""What is asked of an H200: found in results, missed where it is not there; and what tests there said is read."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.clips import GPU_SETS
from benchmarks.gpu import targets as gpu_targets
from benchmarks.gpu import tests as gpu_tests
from benchmarks.gpu.cases import CASES
from benchmarks.gpu.targets import BATCHES, RATES, RATIOS, compare
from benchmarks.gpu.tests import BAD
from benchmarks.harness import OURS
from framefeed._util.versions import source_digest
from framefeed.compare.provenance import of_other_code, stamped
from framefeed.errors import MissingBackend

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture
def document() -> dict[str, Any]:
    """Results that are just enough."""
    results = []
    for case in CASES:
        for clips in GPU_SETS:
            names = {name: least for _, of, contenders, least in RATES if of == case for name in contenders}
            rows = [
                {"name": name, "median": float(rate), "wrong": 0, "error": None}
                for name, rate in ({OURS: 1.0} | names).items()
            ]
            result = {"case": case, "on": clips.name, "entries": rows, "decoders_created_after_warm_up": 0}
            results.append(stamped(result))
    endurance = {"batches": BATCHES, "first_mb": 9000, "max_mb": 9089, "decoders_created_after_warm_up": 0, "wrong": 0}
    return {
        "results": results,
        "ratios": {"cameras": {name: float(least) for _, name, least in RATIOS}},
        "endurance": stamped(endurance),
    }


TESTS = {"results": {"passed": 9} | dict.fromkeys(BAD, 0)}


def _missed(document: dict[str, Any], tests: dict[str, Any] | None = TESTS) -> list[str]:
    return [finding.what for finding in compare(document, tests) if not finding.holds]


def test_what_is_just_enough(document: dict[str, Any]) -> None:
    assert _missed(document) == []


def test_what_was_measured_is_enough_or_said_to_be_older() -> None:
    """Results of other code are not judged: `tests/docs/test_generated.py` asks for the words that say so."""
    document, tests = (json.loads((RESULTS / f"{name}-h200.json").read_text()) for name in ("gpu", "gpu-tests"))
    if of_other_code(document) or of_other_code(tests):
        for name, found in (("gpu", document), ("gpu-tests", tests)):
            listed = (ROOT / "benchmarks" / "README.md").read_text()
            (line,) = (line for line in listed.splitlines() if line.startswith(f"| `{name}-h200.json` |"))
            assert ("with earlier code**" in line) == bool(of_other_code(found)), "run: make figures"
        readme = (ROOT / "README.md").read_text()
        table = readme.partition("<!-- table: gpu-h200 -->")[2].partition("<!-- /table -->")[0]
        assert ("with earlier code**" in table) == bool(of_other_code(document)), "run: make figures"
    else:
        assert _missed(document, tests) == []


def _row(document: dict[str, Any], case: str, name: str) -> dict[str, Any]:
    result = next(result for result in document["results"] if (result["case"], result["on"]) == (case, "cameras"))
    found: dict[str, Any] = next(row for row in result["entries"] if row["name"] == name)
    return found


def _slow_singles(document: dict[str, Any]) -> None:
    for threads in (16, 32):
        _row(document, "singles", f"framefeed, {threads} threads")["median"] = 499.9


def _one_slow_of_two(document: dict[str, Any]) -> None:
    _row(document, "singles", "framefeed, 16 threads")["median"] = 100
    _row(document, "singles", "framefeed, 32 threads")["median"] = 500


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        (_one_slow_of_two, []),
        (_slow_singles, ["single random frames, frames/s"]),
        (lambda d: _row(d, "in-order", "framefeed").update(median=7999.0), ["in order, frames/s"]),
        (lambda d: _row(d, "in-order", "framefeed").update(wrong=1), ["wrong frames"]),
        (lambda d: _row(d, "shuffle", "framefeed, memory for 25%").update(error="no memory"), ["errors"]),
        (lambda d: d["ratios"]["cameras"].update({"half224/full": 0.99}), ["224x224 half, by full size"]),
        (lambda d: d["ratios"]["cameras"].pop("in_order/ThreadedDecoder"), ["in order, by ThreadedDecoder"]),
        (lambda d: d["results"].pop(), ["cases"]),
        (lambda d: d["results"][3].update(decoders_created_after_warm_up=1), ["decoders made after warming up"]),
        (lambda d: d["endurance"].update(max_mb=d["endurance"]["first_mb"] * 1.02), ["growth of memory meanwhile"]),
        (lambda d: d["endurance"].update(batches=9_999), ["batches one after the other"]),
        (lambda d: d["endurance"].update(decoders_created_after_warm_up=1), ["decoders made meanwhile"]),
        (lambda d: d.pop("endurance"), ["batches one after the other"]),
    ],
)
def test_what_is_not_enough(
    document: dict[str, Any], change: Callable[[dict[str, Any]], object], missed: list[str]
) -> None:
    change(document)
    assert _missed(document) == missed


@pytest.mark.parametrize("name", list(TESTS["results"]))
def test_tests_that_failed_or_were_not_run(document: dict[str, Any], name: str) -> None:
    tests = copy.deepcopy(TESTS)
    tests["results"][name] = 0 if name == "passed" else 2
    assert len(_missed(document, tests)) == 1
    del tests["results"][name]
    assert len(_missed(document, tests)) == 1
    assert len(_missed(document, None)) == len(TESTS["results"])


def test_results_tell_which_code_they_are_of(
    document: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests.json").write_text(json.dumps({**TESTS, "source": "old"}))
    files = [str(tmp_path / "gpu.json"), str(tmp_path / "tests.json")]
    (tmp_path / "gpu.json").write_text(json.dumps(document))
    assert gpu_targets.main(files) == 0
    assert "other code than is here: tests\n" in capsys.readouterr().out
    document["results"][0]["source"] = "another"
    document["ratios"]["cameras"]["in_order/bare"] = 0.89
    (tmp_path / "gpu.json").write_text(json.dumps(document))
    assert gpu_targets.main(files) == 1
    said = capsys.readouterr().out
    assert "other code than is here: in-order, cameras; tests\n" in said
    assert [line for line in said.splitlines() if " no " in line] == [
        line for line in said.splitlines() if "0.89" in line
    ]


# --- what tests said ------------------------------------------------------------------------------------------------

HERE = {"source": source_digest()}
NAMES = [f"gpu/test_decode.py::test_{name}" for name in ("one", "two", "three", "four", "five", "six")]
LINES: list[dict[str, Any]] = [
    {"test": NAMES[0], "outcome": "passed", "why": ""},
    {"test": NAMES[1], "outcome": "failed", "why": "assert 1 == 2"},
    {"test": NAMES[2], "outcome": "passed", "why": ""},
    {"test": NAMES[2], "outcome": "failed", "why": "while it was torn down"},
    {"test": NAMES[3], "outcome": "skipped", "why": "Skipped: /tmp/x.mp4: 4096x16 is too much"},
    {"test": NAMES[4], "outcome": "skipped", "why": "Skipped: /tmp/y.mp4: 16x4096 is too much"},
    {"ended": 125},
    {"random": "clips", "seed": 3, "counts": {"good": 40, "bad": 2}},
]


def _write(path: Path, lines: list[dict[str, Any]], **more: Any) -> Path:
    path.write_text("".join(json.dumps({**line, **HERE, **more}) + "\n" for line in lines))
    return path


def test_what_was_noted(tmp_path: Path) -> None:
    path = _write(tmp_path / "lines", LINES)
    with path.open("a") as file:
        file.write('{"test": "gpu/test_decode.py::test_six", "outc')  # where the machine stopped
    lines = gpu_tests.read_lines(path)
    assert gpu_tests.left(lines, NAMES) == NAMES[5:]
    assert gpu_tests.summary(lines, NAMES) == {
        "passed": 1,
        "failed": 2,
        "skipped": 2,
        "not_run": 1,
        "failed_tests": sorted(NAMES[1:3]),
        "skipped_because": {"Skipped: ... N is too much": 2},
        "processes_that_ended_badly": 1,
        "random": [{"random": "clips", "seed": 3, "counts": {"good": 40, "bad": 2}}],
        "random_bad": 2,
    }
    assert set(gpu_tests.summary(lines)) == {"random", "random_bad"}
    for source in ("another", None):
        with pytest.raises(ValueError, match="with other code"):
            gpu_tests.read_lines(_write(path, LINES, source=source))


def test_tests_on_a_gpu_are_noted_one_by_one(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "FRAMEFEED_TEST_LINES": str(lines)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "tests/gpu/test_context.py"]
    assert subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False).returncode == 0
    names = [line["test"] for line in gpu_tests.read_lines(lines)]
    assert names and all(name.startswith("tests/gpu/test_context.py::") for name in names)
    assert gpu_tests.summary(gpu_tests.read_lines(lines), names)["skipped"] == len(names)


def test_what_the_memory_checker_said() -> None:
    assert gpu_tests.memcheck_errors("31 passed\n========= ERROR SUMMARY: 0 errors\n") == 0
    assert gpu_tests.memcheck_errors("31 passed\n========= ERROR SUMMARY: 12 errors\n") == 12
    for log in ("31 passed\n", "31 skipped\n========= ERROR SUMMARY: 0 errors\n", ""):
        with pytest.raises(ValueError, match="memory checker"):
            gpu_tests.memcheck_errors(log)


class _Gpu:
    name = "a GPU"

    def describe(self) -> dict[str, Any]:
        return {"gpu": self.name}


def test_both_are_kept_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_tests, "Gpu", _Gpu)
    monkeypatch.setattr(gpu_tests, "resolve_device", lambda device: None)
    output, names, log = tmp_path / "tests.json", tmp_path / "names", tmp_path / "log"
    lines = _write(tmp_path / "lines", LINES)
    names.write_text("\n".join(NAMES) + "\n")
    log.write_text("31 passed\n========= ERROR SUMMARY: 0 errors\n")
    tests = ["--lines", str(lines), "--tests", str(names), "--command", "tests", "--output", str(output)]
    random = ["--lines", str(lines), "--command", "random", "--output", str(output)]
    memcheck = ["--memcheck", str(log), "--command", "memcheck", "--output", str(output)]
    assert gpu_tests.main(tests) == 1
    assert gpu_tests.main(random) == 1
    assert gpu_tests.main(memcheck) == 1  # tests have failed
    found = json.loads(output.read_text())
    assert (found["command"], found["machine"]) == ("tests; random; memcheck", {"gpu": "a GPU"})
    assert [found["results"][name] for name in gpu_tests.BAD] == [2, 1, 1, 2, 0]
    assert found["source"] == source_digest()
    capsys.readouterr()
    assert gpu_tests.main([*tests, "--left"]) == 0 and capsys.readouterr().out.split() == NAMES[5:]
    for digest in ("another", None):  # what other code did is not added to
        output.write_text(json.dumps({**found, "source": digest}))
        assert gpu_tests.main(memcheck) == 2
        assert "with other code" in capsys.readouterr().err
    output.write_text(json.dumps(found))
    monkeypatch.setattr(_Gpu, "name", "another")
    before = output.read_text()
    assert gpu_tests.main(memcheck) == 2
    assert "another machine" in capsys.readouterr().err and output.read_text() == before
    assert gpu_tests.main(tests) == 1  # begins from nothing
    assert "memcheck_errors" not in json.loads(output.read_text())["results"]


def test_without_a_gpu_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(device: str) -> None:
        raise MissingBackend(device, "there is none")

    monkeypatch.setattr(gpu_tests, "resolve_device", none)
    output = tmp_path / "tests.json"
    assert gpu_tests.main(["--memcheck", "log", "--command", "memcheck", "--output", str(output)]) == 2
    assert not output.exists() and "there is none" in capsys.readouterr().err


# --- a GPU that was promised ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("promised", ["1", "yes", "0", None])
def test_a_promised_gpu_is_not_skipped_over(promised: str | None) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"}
    environment.pop("FRAMEFEED_REQUIRE_GPU", None)
    if promised is not None:
        environment["FRAMEFEED_REQUIRE_GPU"] = promised
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "tests/gpu/test_context.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if promised in ("1", "yes"):
        assert done.returncode not in (0, 5)
        assert "FRAMEFEED_REQUIRE_GPU=1 promises what is missing here: a GPU that torch can use" in done.stderr
    else:
        assert done.returncode == 0 and done.stdout.startswith("ss")


# --- the script that measures ---------------------------------------------------------------------------------------

# Stands in for Python where the script is tried: notes its arguments and the environment, and writes results.
_STUB = """#!/usr/bin/env bash
echo "$FRAMEFEED_REQUIRE_GPU $*" >> "$CALLS"
case "$*" in
  *--collect-only*) printf 'tests/gpu/a.py::test_%s\\n' 1 2 3 ;;
  *--left*) printf 'tests/gpu/a.py::test_%s\\n' 2 3 ;;
  *"pytest -rfE"*) sleep 60 ;;
esac
while [ $# -gt 1 ]; do
  if [ "$1" = --output ] || [ "$1" = -o ]; then echo written > "$2"; fi
  shift
done
case "$SLOW" in "$(basename "$0")") sleep 60 ;; esac
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., tuple[str, list[str]]]:
    """Runs benchmarks/gpu.sh with a stand-in for Python; returns what it said, and the calls."""
    stub = tmp_path / "python"
    stub.write_text(_STUB)
    stub.chmod(0o755)

    def run(*parts: str, **environment: str) -> tuple[str, list[str]]:
        calls = tmp_path / "calls"
        calls.write_text("")
        given = {"PYTHON": stub, "CALLS": calls, "CLIPS": tmp_path / "clips", "RESULTS": tmp_path / "results"}
        done = subprocess.run(
            [ROOT / "benchmarks" / "gpu.sh", *parts],
            env={**os.environ, "SLOW": "", **{name: str(value) for name, value in given.items()}, **environment},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        return done.stdout + done.stderr, calls.read_text().splitlines()

    return run


def test_the_script_ends_parts_whose_time_is_up(script: Callable[..., tuple[str, list[str]]], tmp_path: Path) -> None:
    said, calls = script("step", "loader", "readers", SLOW="python", TIME="17")
    assert "== step: exit status 124" in said and "== loader: exit status 124, 0 s: the time was up" in said
    assert len(calls) == 1 and "benchmarks.step" in calls[0]
    assert calls[0].startswith("1 ")  # a GPU is promised
    assert (tmp_path / "clips" / "results" / "step-h200.json").read_text() == "written\n"


def test_the_script_goes_on(script: Callable[..., tuple[str, list[str]]], tmp_path: Path) -> None:
    said, calls = script("loader", TIME="300")
    assert "== loader: exit status 0" in said
    assert "--go-on" not in calls[0] and "--minutes 2 " in calls[0]
    kept, other = tmp_path / "clips" / "results", tmp_path / "other"
    said, calls = script("loader", "inference", GO_ON=str(kept), RESULTS=str(other))
    assert "--go-on" in calls[0] and "--minutes 7 " in calls[0]
    assert sorted(path.name for path in other.iterdir()) == ["gpu-h200.json", "inference-h200.json"]
    said, calls = script("tests", TIME="17", JOBS="2")
    assert "the time was up before all tests were run" in said and "== tests: exit status 1" in said
    run = [call.split("--durations=3")[1].split() for call in calls if "pytest -rfE" in call]
    assert sorted(name for names in run for name in names) == [f"tests/gpu/a.py::test_{number}" for number in (2, 3)]
    assert script("unknown")[0].startswith("unknown: no such part")
