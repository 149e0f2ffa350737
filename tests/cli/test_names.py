"""Names of files cannot command a terminal, nor a spreadsheet."""

from __future__ import annotations

import csv as plain_csv
import json
import random
import shutil
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cli.conftest import Run
from framefeed import Catalog, FramefeedError, VideoDataset
from framefeed._util.text import csv_cell, printable, text_of_cell
from framefeed.cli import console
from framefeed.infer.output import Output
from framefeed.infer.progress import RunProgress
from framefeed.infer.rows import COLUMNS, read_rows

# Sets the title, clears the screen, hides the text, writes over the line, says another name from right to left; markup.
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[8m\r\x08\x9b31m\x7f\u202egpj\u2028[red]bold[link=x]\nframefeed: all equal"


def harmless(text: str) -> bool:
    return all(each == "\n" or unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for each in text)


@pytest.fixture(scope="module")
def folder(clip_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import clips

    made = tmp_path_factory.mktemp("evil")
    shutil.copyfile(clips.make("h264_open_gop", clip_folder), made / f"good{EVIL}.mp4")
    (made / f"bad{EVIL}.mp4").write_bytes(b"no video")
    return made


def test_no_command_prints_control_characters(run: Run, folder: Path, tmp_path: Path) -> None:
    good, bad = folder / f"good{EVIL}.mp4", folder / f"bad{EVIL}.mp4"
    catalog, store, out = (tmp_path / f"{name}{EVIL}" for name in ("c.arrow", "store", "out"))
    commands = [
        ("info", good),
        ("info", bad),
        ("info", f"missing{EVIL}"),
        ("frames", good, "--at", "0", "-o", out),
        ("verify", good, bad, "--seed", "2"),
        ("index", folder, "-o", catalog),
        ("pack", catalog, store),
        ("pack", "--verify", store),
        ("prepare", folder, tmp_path / f"made{EVIL}", "--codec", "h264", "--force", "--workers", "1"),
        ("sampling", catalog, "--orders", "stream", "--batch-size", "4", "--json", tmp_path / f"s{EVIL}"),
        ("diff", f"a{EVIL}.csv", f"b{EVIL}.csv"),
        ("infer", folder, "--model", f"none{EVIL}.onnx", "-o", tmp_path / "d.csv"),
        ("infer", folder, "--model", "x", "-o", f"d{EVIL}"),
        ("bench", "--quick", "--readers", f"x{EVIL}", good),
        ("bench", "--quick", "--readers", "pyav", "-o", tmp_path / f"b{EVIL}.json", bad),
        ("bench", "--quick", "--readers", "pyav", "-o", tmp_path / f"b{EVIL}.json", good),
        (f"no{EVIL}",),
        ("info", good, f"--{EVIL}"),
    ]
    for command in commands:
        ran = run(*command)
        assert ran.out or ran.err, command
        assert harmless(ran.out + ran.err), command
        assert "\nframefeed: all equal" not in ran.out + ran.err, command
    ran = run("info", good, "--json")
    assert ran.json["file"] == str(good) and harmless(ran.out)
    ran = run("verify", good, bad, "--seed", "2", "--json")
    assert {entry.get("file", entry.get("path")) for entry in ran.json} == {str(good), str(bad)} and harmless(ran.out)


def test_tables_keep_brackets(run: Run, folder: Path) -> None:
    ran = run("info", folder / f"good{EVIL}.mp4")
    assert "[red]bold[link=x]\\x0a" in ran.out and "\\x1b]0;owned\\x07" in ran.out


def test_errors_and_warnings(folder: Path) -> None:
    error = FramefeedError(EVIL, f"not {EVIL}")
    assert harmless(str(error)) and error.path == EVIL and error.reason == f"not {EVIL}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        VideoDataset(sorted(folder.iterdir()), on_error="skip")
    assert [harmless(str(each.message)) for each in caught] == [True]


def test_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from framefeed.cli.commands.compare import bench

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with RunProgress([EVIL], [2], True) as bars:
        bars.advance(0, 1)
        bars._bars.refresh()
    with console.progress(EVIL) as report:
        report(1, 2)
    with bench.progress(show=True) as told:
        told(1, 2, f"looking at {EVIL}")
    shown = capsys.readouterr().err
    assert "owned" in shown
    for part in ("\x1b]0;", "\x07", "\x1b[8m", "\x9b", "\x7f", "\u202e", "\u2028"):
        assert part not in shown


def test_printable() -> None:
    assert printable("plain ünïcode 語 \U0001f600") == "plain ünïcode 語 \U0001f600"
    assert printable("\x1b\x00\x7f\x9b\u202e\udcff\n\U000e0001") == "\\x1b\\x00\\x7f\\x9b\\u202e\\udcff\\x0a\\U000e0001"
    assert printable("a\nb", keep="\n") == "a\nb"


# --- spreadsheets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "'=", "''@"])
def test_formulas(first: str) -> None:
    text = f"{first}HYPERLINK(1)"
    assert csv_cell(text) == f"'{text}" and text_of_cell(csv_cell(text)) == text


@pytest.mark.parametrize("text", ["-1.5", "+3", "-.5e-3", "a=b", "", "'quoted'", "1", "videos/-x.mp4"])
def test_cells_that_stay(text: str) -> None:
    assert csv_cell(text) == text == text_of_cell(text)


def test_cells_come_back() -> None:
    rng = random.Random(26)
    for _ in range(20_000):
        text = "".join(rng.choices("'=+-@\t\r\n1.e\uff0d a", k=rng.randrange(6)))
        assert text_of_cell(csv_cell(text)) == text
        assert csv_cell(text)[:1] not in ("=", "@", "\t", "\r", "\n") and not csv_cell(text).startswith("-a")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_that_are_written(suffix: str, tmp_path: Path) -> None:
    names = ["=cmd|' /C calc'!A0.mp4", "-1.5", "'=x", 'plain,"quoted"\nname.mp4', "@a", "\tb"]
    path = tmp_path / f"rows{suffix}"
    output = Output(path, {})
    output.begin({})
    numbers = [np.full(len(names), -1.5)] * 5
    columns = [names, np.arange(len(names)) - 2, *numbers, numbers[0], -np.ones(len(names), int), ["+class"] * 6]
    rows = pa.table([pa.array(column, kind.type) for column, kind in zip(columns, COLUMNS, strict=True)], COLUMNS)
    with output.rows(COLUMNS) as writer:
        writer.write(rows)
    output.close()
    assert read_rows(path).equals(rows)
    if suffix == ".csv":
        with open(path, newline="", encoding="utf-8") as file:
            _, *lines = plain_csv.reader(file)
        for line in lines:
            for cell in line:
                assert cell[:1] not in ("=", "+", "@", "\t") and (cell[:1] != "-" or float(cell) < 0)
        assert [line[2] for line in lines] == ["-1.5"] * len(names)


def test_catalog_report_keeps_names(folder: Path, tmp_path: Path) -> None:
    catalog = Catalog.build(folder, tmp_path / "c.arrow", progress=False)
    assert json.loads(json.dumps(catalog.report[0].path)) == str(folder / f"bad{EVIL}.mp4")
