"""``framefeed sampling``."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from cli.conftest import Run
from framefeed import Catalog
from sampling.conftest import LENGTHS, level, write_flat

NAMES = ("sequential", "chunked:4", "buffered:1024", "shuffle, 10%", "window:16", "file first")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sampling")
    files = [write_flat(folder / f"{number}.mp4", number) for number in (0, 1, 3, 6)]
    Catalog.build(files, folder / "catalog.arrow", progress=False).close()
    return folder / "catalog.arrow"


def test_table_plot_and_json(run: Run, catalog: Path, tmp_path: Path) -> None:
    plot, document = tmp_path / "new" / "plot.svg", tmp_path / "study.json"
    ran = run("sampling", catalog, "--batch-size", 16, "--steps", 3, "--plot", plot, "--json", document)
    assert (ran.code, ran.err) == (0, "")
    assert all(name in ran.out for name in NAMES)
    assert "mean luma of" in ran.out and "4 files, 16 groups, 117 frames; batches of 16" in ran.out
    assert "Decoding is the bottleneck: take order=" in ran.out and "The model is the bottleneck" in ran.out
    assert ran.out.splitlines()[-2:] == [str(plot), str(document)]
    found = json.loads(document.read_text())
    assert found["steps"] == 3 and 0.9 < found["correlation"]["group"] <= 1
    root = ET.fromstring(plot.read_text())
    shown = "".join(root.itertext())
    assert all(row["name"] in shown for row in found["rows"])


def test_json_is_printed(run: Run, catalog: Path) -> None:
    ran = run("sampling", catalog, "--batch-size", 8, "--correlation", "0.5", "--orders", "shuffle,chunked:8", "--json")
    assert (ran.code, ran.err) == (0, "")
    found = ran.json
    assert [row["name"] for row in found["rows"]] == ["shuffle", "chunked:8"]
    assert (found["values"], found["correlation"]["group"], found["batch_size"]) == ("given", 0.5, 8)


def test_own_values(run: Run, catalog: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.csv"
    rows = [
        f"{place},{frame},{level(file, frame)}"
        for place, file in enumerate((0, 1, 3, 6))
        for frame in range(LENGTHS[file])
    ]
    values.write_text("\n".join(["video,frame,value", *rows]))
    ran = run("sampling", catalog, "--batch-size", 8, "--values", values, "--orders", "shuffle")
    assert (ran.code, ran.err) == (0, "")
    assert f"117 values of {values}" in ran.out


def test_memory_and_frame_size(run: Run, catalog: Path) -> None:
    argv = ("sampling", catalog, "--batch-size", 8, "--correlation", 0.5, "--memory", "1MB", "--frame-size", "64x48")
    found = run(*argv, "--json").json
    assert {row["memory_frames"] for row in found["rows"] if not row["is_model"]} == {10**6 // (64 * 48 * 3)}
    assert found["memory_bytes"] == 10**6


@pytest.mark.parametrize(
    ("argv", "possible"),
    [
        ((), "CATALOG"),
        (("--batch-size", "0"), "1, 2, 3"),
        (("--memory", "much"), "8GiB"),
        (("--frame-size", "224"), "224x224"),
        (("--correlation", "2"), "-1 to 1"),
        (("--seed", "x"), "0, 1, 2"),
        (("--orders", "random"), "window:16"),
        (("--orders", "window:50"), "no file has 50 frames; the longest has 40"),
        (("--batch-size", "1"), "batch_size has to be in 2"),
        (("--batch-size", "118"), "but there are only 117 frames"),
        (("--values", "x.csv", "--correlation", "0.1"), "not allowed with"),
    ],
)
def test_bad_arguments_say_what_is_possible(run: Run, catalog: Path, argv: tuple[str, ...], possible: str) -> None:
    given: tuple[str, ...] = () if "--correlation" in argv else ("--correlation", "0.5")
    given += () if "--batch-size" in argv else ("--batch-size", "8")
    ran = run("sampling", *((catalog, *argv, *given) if argv else ()))
    assert (ran.code, ran.out) == (2, "")
    assert possible in ran.err


def test_files_that_cannot_be_used(run: Run, catalog: Path, tmp_path: Path) -> None:
    missing = run("sampling", tmp_path / "none.arrow")
    assert missing.code == 2 and missing.err.startswith(f"framefeed: {tmp_path / 'none.arrow'}: no such catalog")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    wrong = run("sampling", catalog, "--values", tmp_path / "bad.csv")
    assert wrong.code == 2 and "lacks the column video" in wrong.err and "Traceback" not in wrong.err


def test_help_names_it(run: Run) -> None:
    assert "  sampling " in run("--help").out
    assert "--values" in run("sampling", "--help").out
