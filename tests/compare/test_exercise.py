"""The exercise: every way reads the frames that it says, and its table and plots are those of the documentation."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from framefeed._util.versions import source_digest
from framefeed.charts.plots import Dot, scatter, study_plot
from framefeed.cli import build_parser, main
from framefeed.compare.exercise import exercise as exercise_run
from framefeed.compare.exercise.exercise import Exercise, count_wrong, find_ways, measured_effect, prepare
from framefeed.compare.exercise.exercise_clips import num_frames, write_files
from framefeed.compare.exercise.exercise_page import exercise_plot, exercise_table, study_table
from framefeed.compare.exercise.exercise_sources import Batch, Material, PyavSource
from framefeed.compare.provenance import sources
from framefeed.dataset.orders import Chunked, Sequential
from framefeed.sampling import Independent, Population, SlidingWindow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sampling.md"
RESULTS = ROOT / "benchmarks" / "results" / "exercise-2-cores.json"
FILES, BATCH = 3, 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exercise")


@pytest.fixture(scope="module")
def material(folder: Path) -> Material:
    return prepare(folder, FILES, BATCH, 1, lambda done, total, what: None)


def test_files_are_made_once(folder: Path, material: Material) -> None:
    assert material.population.file_sizes.tolist() == [num_frames(number) for number in range(FILES)] == [60, 97, 134]
    assert material.population.group_sizes[:2].tolist() == [30, 30]
    stamps = [path.stat().st_mtime_ns for path in material.files]
    told: list[tuple[int, int]] = []
    assert tuple(write_files(folder, FILES, workers=2, done=lambda *step: told.append(step))) == material.files
    assert [path.stat().st_mtime_ns for path in material.files] == stamps and told == [(FILES, FILES)]
    lengths = [num_frames(number) for number in range(200)]
    assert (min(lengths), max(lengths)) == (60, 180)


def test_ways_of_the_exercise(material: Material) -> None:
    names = [(way.reader, way.name) for way in find_ways(material)]
    assert len(set(names)) == len(names) == 16
    assert [name for reader, name in names if reader == "PyAV"] == [
        "one file",
        "global index",
        "global index, workers",
        "runs of 4, workers",
        "runs of 8, workers",
        "runs of 16, workers",
        "in order, workers",
    ]


def test_everything_is_measured(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exercise_run, "MEASURED_BATCHES", 2000)
    monkeypatch.setattr(exercise_run, "LEAST_BATCHES", 1)
    monkeypatch.setattr(exercise_run, "CHECKED_BATCHES", 1)
    output = tmp_path / "exercise.json"
    told: list[tuple[int, int, str]] = []
    names = ("one file", "global index", "sequential", "chunked:4", "shuffle", "shuffle, 25%")
    ways = [way for way in find_ways(material) if way.name in names]
    Exercise(material, ways, output, seconds=0.05, repeat=2, command="framefeed bench exercise").run(
        lambda *step: told.append(step)
    )
    document = json.loads(output.read_text())
    assert document["complete"] and [step[0] for step in told] == sorted(step[0] for step in told)
    for row in document["results"]:
        assert row["wrong"] == 0 and len(row["iterations_per_second"]) == 2 and row["median"] > 0
        found = row["statistics"]
        assert found["design_effect"] > 0 and found["measured_effect"] > 0
        ours = row["reader"] == "framefeed"
        assert (
            (row["measured_decoded_per_delivered"] is not None) == ours == (found["decoded_per_delivered"] is not None)
        )
    rows = {row["name"]: row["statistics"] for row in document["results"]}
    for name in ("global index", "chunked:4", "shuffle"):
        assert rows[name]["measured_effect"] == pytest.approx(rows[name]["design_effect"], rel=0.2)
    assert set(sources(document).values()) == {source_digest()}
    assert "| shuffle, 25% |" in exercise_table(document).replace("**", "") and "| `shuffle` |" in study_table(document)
    for plot in (study_plot(document["study"]), exercise_plot(document)):
        ET.fromstring(plot)


@pytest.mark.parametrize("method", ["shuffle", "sequential", SlidingWindow(4)], ids=str)
def test_workers_read_the_right_frames(material: Material, method: str | SlidingWindow) -> None:
    source = PyavSource(material, method, workers=1)
    try:
        assert count_wrong(source) == 0
        frames, which = next(source.batches())
        assert tuple(frames.shape) == (BATCH, 3, 224, 224) and frames.dtype == torch.float32
        assert which is not None and which.shape == (BATCH, 2)
        if method == "sequential":
            assert which.tolist() == [[0, number] for number in range(BATCH)]
        if isinstance(method, SlidingWindow):
            assert (np.diff(which.reshape(4, 4, 2)[..., 1]) == 1).all()
    finally:
        source.close()


class _Shifted:
    """Gives each frame as its neighbour."""

    whole = False

    def __init__(self, source: PyavSource) -> None:
        self._source = source

    def batches(self, *, named: bool = False) -> Iterator[Batch]:
        for frames, which in self._source.batches(named=named):
            assert which is not None
            yield frames, which + np.array([0, 1])

    def decoded_per_delivered(self) -> float | None:
        return None

    def close(self) -> None:
        self._source.close()


def test_wrong_frames_are_counted(material: Material) -> None:
    source = _Shifted(PyavSource(material, "shuffle", workers=0))
    assert count_wrong(source) == exercise_run.CHECKED_BATCHES * BATCH


def test_interrupted_it_keeps_what_it_has(material: Material, tmp_path: Path) -> None:
    output = tmp_path / "exercise.json"
    ways = [way for way in find_ways(material) if way.name in ("sequential", "chunked:16")]
    exercise = Exercise(material, ways, output, seconds=0.05, repeat=3)

    def stop(done: int, total: int, what: str) -> None:
        if done == 6:  # statistics, two checks, two timings
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exercise.run(stop)
    document = json.loads(output.read_text())
    assert not document["complete"]
    assert [len(row["iterations_per_second"]) for row in document["results"]] == [1, 1]
    assert "chunked:16" in exercise_table(document) and exercise_plot(document)


def test_the_command(
    folder: Path,
    material: Material,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exercise_run, "MEASURED_BATCHES", 500)
    common = [
        "bench",
        "exercise",
        "--files",
        str(FILES),
        "--clips",
        str(folder),
        "--batch-size",
        "32",
        "--workers",
        "1",
    ]
    assert main([*common, "--ways", "chunked", "--seconds", "0.05", "--repeat", "1", "-o", "new/results.json"]) == 0
    printed = capsys.readouterr().out
    assert (
        "chunked:4" in printed
        and "worth/s" in printed
        and printed.splitlines()[-2:]
        == [
            "new/results.json",
            "new/results.svg",
        ]
    )
    document = json.loads(Path("new/results.json").read_text())
    assert [row["name"] for row in document["results"]] == ["chunked:4", "chunked:8", "chunked:16"]
    for argv, message in ((["--ways", "nobody"], "none contains 'nobody'"), (["--batch-size", "400"], "291 frames")):
        with pytest.raises(SystemExit) as stopped:
            main([*common, *argv])
        assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_bench_itself_is_as_before() -> None:
    parser = build_parser()
    plain = parser.parse_args(["bench", "a.mp4", "./exercise", "exercise", "--repeat", "2"])
    assert (plain.files, plain.repeat) == (["a.mp4", "./exercise", "exercise"], 2)
    assert parser.parse_args(["bench"]).files == []
    own = parser.parse_args(["bench", "exercise", "--files", "3"])
    assert own.files == 3 and own.run is not plain.run and own.command == "bench"
    for argv in (
        ["bench", "--files", "3"],
        ["bench", "exercise", "--readers", "pyav"],
        ["bench", "exercise", "--files", "0"],
    ):
        with pytest.raises(SystemExit):
            parser.parse_args(argv)


def test_measured_effect() -> None:
    population = Population.of([[10] * 10] * 20)
    values = np.repeat(np.random.default_rng(0).standard_normal(200), 10)  # the same within a group
    assert measured_effect(Independent(), population, values, 40) == pytest.approx(1, rel=0.05)
    assert measured_effect(Sequential(), population, values, 40) == pytest.approx(10, rel=0.3)
    assert measured_effect(Chunked(5), population, values, 40) == pytest.approx(4.5, rel=0.25)


def test_points_and_names_stay_within_the_plot() -> None:
    dots = [Dot(f"way <{number}>", number % 3, 0.01 * 3**number, 1.0 + (number > 9)) for number in range(12)]
    root = ET.fromstring(scatter(dots, "title & more", x_name="x", y_name="y"))
    width, height = (float(each) for each in root.attrib["viewBox"].split()[2:])
    places = [
        (float(text.attrib["x"]), float(text.attrib["y"])) for text in root.iter("{http://www.w3.org/2000/svg}text")
    ]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
    names = sorted(y for x, y in places if x > 480)
    assert len(names) >= 12 and min(np.diff(names[:12])) > 10
    assert "way <3>" in "".join(root.itertext())
