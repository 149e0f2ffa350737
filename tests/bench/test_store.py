"""The benchmark of packet stores: its slow disk counts calls, and the store needs few of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks import store as bench
from framefeed._util.versions import source_digest
from framefeed.compare.provenance import sources

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "store-slow-disk.json"


def test_a_slow_disk_counts_calls(tmp_path: Path) -> None:
    slow, quick = tmp_path / "slow", tmp_path / "quick"
    for folder in (slow, quick):
        folder.mkdir()
        (folder / "file").write_bytes(bytes(2 * bench.READ_AHEAD))
    for cached, expected in ((False, 7), (True, 4)):
        disk = bench.SlowDisk(slow, 0.0, cached=cached)
        with disk.in_use():
            for folder in (slow, quick):
                path = str(folder / "file")
                os.stat(path)
                os.stat(path)
                descriptor = os.open(path, os.O_RDONLY)
                for offset in (0, 10, bench.READ_AHEAD, bench.READ_AHEAD - 10):  # two blocks
                    os.pread(descriptor, 20, offset)
                os.close(descriptor)
        assert disk.calls == expected
    os.stat(str(slow / "file"))
    assert disk.calls == 4  # as it was


def test_the_store_is_faster(tmp_path: Path) -> None:
    output = tmp_path / "store.json"
    arguments = ["--files", "2", "--frames", "40", "--requests", "5", "--repeat", "1", "--output", str(output)]
    assert bench.main(arguments) == 0
    document = json.loads(output.read_text())
    assert set(sources(document).values()) == {source_digest()}
    assert {result["container"] for result in document["results"]} == {"mp4", "mkv", "ts"}
    for result in document["results"]:
        if result["disk"] == "every call":
            assert result["store_vs_videos"] > 3


def test_the_committed_numbers() -> None:
    document = json.loads(RESULTS.read_text())
    assert document["versions"]["framefeed"] and document["machine"]["cpus_used"]
    for result in document["results"]:
        assert all(way["wrong"] == 0 for way in result["ways"].values())
        if result["disk"] == "every call":
            assert result["store_vs_videos"] >= 3
