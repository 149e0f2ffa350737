"""The benchmark of batch inference runs, checks boxes, and says what its bound is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import inference
from benchmarks.tables import inference_numbers
from framefeed._util.versions import source_digest
from framefeed.compare.provenance import sources
from framefeed.testing.shape_detector import painted_boxes


def test_smoke(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    argv = ["--smoke", "--repeat", "1", "--clips", str(tmp_path / "clips"), "--output", str(output)]
    assert inference.main(argv) == 0
    document = json.loads(output.read_text())
    assert set(sources(document).values()) == {source_digest()}
    (result,) = document["results"]
    assert result["wrong_boxes"] == 0
    assert result["packets_decoded"] <= result["packets_planned"] < result["packets_of_all_frames"]
    rates = {name: median for name, median in result["medians"].items() if "half" not in name}
    assert set(rates) == {"decode", "model", "whole", "one after the other"}
    assert min(rates.values()) > 0
    table = inference_numbers(document)
    assert table.count("\n") == 4 and f"{result['vs_one_after_the_other']:.2f}x" in table


def test_bounds() -> None:
    rates = {"decode": 30.0, "model": 60.0}
    assert inference._bound(rates, shared=True) == pytest.approx(20.0)  # both want the same cores
    assert inference._bound(rates, shared=False) == 30.0  # the decoder is hardware of its own


def test_wrong_boxes_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    material = inference.Material(inference.SMOKE_CASES[0], tmp_path, torch.device("cpu"))
    paint = painted_boxes
    monkeypatch.setattr(inference, "painted_boxes", lambda number, *size, seed: paint(number + 9, *size, seed=seed))
    wrong, planned, decoded = material.check()
    assert wrong > 0 and 0 < decoded <= planned


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("framefeed.device._lacking", lambda: "there is none")
    assert inference.main(["--device", "cuda", "--smoke"]) == 2
