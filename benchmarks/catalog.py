"""Times of building, opening and looking into catalogs."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from framefeed.catalog.arrow_file import Rows, write_file
from framefeed.catalog.catalog import Catalog
from framefeed.catalog.catalog_rows import encode
from framefeed.catalog.parts import gather
from framefeed.index.video_index import VideoIndex
from framefeed.testing.scenes import write_short_files

NUM_FILES = 2000


def main(argv: list[str] | None = None) -> int:
    """Measures and writes the results."""
    arguments = harness.make_parser("catalog", __doc__, repeat=3).parse_args(argv)
    contents = write_short_files(Path(".bench") / "many", 8)
    document = harness.stamped(harness.begin("catalog", argv, results={}))
    with tempfile.TemporaryDirectory(dir=".bench") as folder:
        document["results"]["build"] = _building(contents, Path(folder), arguments.repeat)
        document["results"]["open"] = _opening(contents[0], Path(folder), arguments.repeat)
    print(json.dumps(document["results"], indent=1))
    harness.save(arguments.output, document)
    return 0


def _building(contents: list[Path], folder: Path, repeat: int) -> dict[str, Any]:
    """Seconds for many short files, with one worker and with two, and again when nothing has changed."""
    paths = [folder / f"{number:05d}.mp4" for number in range(NUM_FILES)]
    for number, path in enumerate(paths):
        os.link(contents[number % len(contents)], path)
    seconds: dict[str, list[float]] = {"1 worker": [], "2 workers": [], "unchanged": []}
    for _ in range(repeat):
        for workers in (1, 2):
            target = folder / f"{workers}.arrow"
            target.unlink(missing_ok=True)
            seconds["1 worker" if workers == 1 else "2 workers"].append(_build(paths, target, workers))
        seconds["unchanged"].append(_build(paths, target, 2))
    return {"files": NUM_FILES, "seconds": seconds, "bytes_a_video": round(target.stat().st_size / NUM_FILES)}


def _build(paths: list[Path], target: Path, workers: int) -> float:
    start = time.perf_counter()
    Catalog.build(paths, target, num_workers=workers, progress=False).close()
    return round(time.perf_counter() - start, 3)


def _opening(video: Path, folder: Path, repeat: int) -> dict[str, Any]:
    """Seconds to open catalogs of one table repeated, and for a look-up by number and by path."""
    rows = Rows([encode([VideoIndex.scan(video)] * 1000)])
    schema = rows.batches[0].schema
    results: dict[str, Any] = {}
    for count in (1_000, 100_000):
        target = folder / f"{count}.arrow"
        names = [f"videos/{number:06d}.mp4" for number in range(count)]
        write_file(str(target), gather([(rows, number % 1000) for number in range(count)], names, schema), schema, [])
        opening, by_number, by_path = [], [], []
        for attempt in range(repeat):
            start = time.perf_counter()
            catalog = Catalog.open(target)
            opening.append(time.perf_counter() - start)
            chosen = np.random.default_rng(attempt).choice(count, 201, replace=False).tolist()
            catalog[str(folder / names[chosen.pop()])]  # the first look-up by path sorts the hashes
            by_number.append(_look_up(catalog, chosen[:100]))
            by_path.append(_look_up(catalog, [str(folder / names[number]) for number in chosen[100:]]))
            catalog.close()
        results[f"{count} videos"] = {
            "open_seconds": [round(value, 5) for value in opening],
            "look_up_by_number_seconds": [round(value, 6) for value in by_number],
            "look_up_by_path_seconds": [round(value, 6) for value in by_path],
        }
    return results


def _look_up(catalog: Catalog, keys: list[Any]) -> float:
    start = time.perf_counter()
    for key in keys:
        catalog[key]
    return (time.perf_counter() - start) / len(keys)


if __name__ == "__main__":
    sys.exit(main())
