"""Measures readers in turns, and saves the results after every step."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from framefeed._util.atomic_write import write
from framefeed._util.versions import installed_version
from framefeed.compare.compared_videos import ComparedVideo
from framefeed.compare.config import Config, requests
from framefeed.compare.provenance import machine, stamped
from framefeed.compare.reader_process import Job, ReaderFailed, Timed, Worker, reader_class
from framefeed.compare.truth import Wrong

__all__ = ["FORMAT", "Bench", "find_readers"]

FORMAT = "framefeed bench 1"
EXAMPLES = 8  # wrong frames to list
FAR_SLOWER = 4.0  # a mode that takes this many times as long as another is given up
FEW = 4  # frames to try modes with
LEAST_LIMIT = 5.0  # seconds before a mode is given up
BEGIN_LIMIT = 20.0  # time limit of the first request, in seconds, including one-time setup


@dataclass
class CaseReader:
    """One reader in one case.

    Attributes:
        worker: Its process.
        jobs: Its job in each mode to try.
        mode: The mode to time.
        checked, wrong: Number of checked and of wrong frames in that mode.
        tested: True if wrong frames would have been noticed.
        runs: Timings.
        error: Error message if there are none.
    """

    worker: Worker
    jobs: dict[str, Job]
    mode: str = ""
    checked: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    tested: bool = True
    runs: list[Timed] = field(default_factory=list)
    error: str | None = None

    def prepare(self, video: ComparedVideo) -> None:
        """Checks all frames in each mode, and selects the fastest right mode, or else the fastest.

        A mode that is much slower than a right one is given up: some libraries would take minutes.
        """
        best: tuple[bool, float] | None = None
        limit: float | None = None
        errors = []
        for mode, job, expected in self._likely_fastest_first():
            try:
                if limit is not None:
                    self._begin(mode, job, expected, limit)
                found = self.worker.check(job, video.truth, None if limit is None else max(LEAST_LIMIT, limit))
                if not found.wrong:
                    took = FAR_SLOWER * found.seconds
                    limit = took if limit is None else min(took, limit)
                rank = (bool(found.wrong), self.worker.time(job).seconds)
            except ReaderFailed as error:
                errors.append(f"{mode}: {error}" if len(self.jobs) > 1 else str(error))
                continue
            if best is None or rank < best:
                best, self.mode, self.checked, self.wrong = rank, mode, found.checked, found.wrong
                self.tested = found.tested
        if best is None:
            self.mode = next(iter(self.jobs))
            self.error = "; ".join(dict.fromkeys(errors))

    def _begin(self, mode: str, job: Job, expected: float, limit: float) -> None:
        """Makes the first request of a mode, which creates decoders and compiles kernels and is not representative.

        Raises:
            ReaderFailed: The mode is slow even after that.
        """
        if mode == "seek" and max(LEAST_LIMIT, limit) < expected < float(
            "inf"
        ):  # one frame per request: the expectation is reliable
            raise ReaderFailed(f"would take {expected:.0f} s")
        least = max(1.0, limit / len(job.requests))
        if self.worker.read(job, BEGIN_LIMIT) > least:
            self.worker.read(job, least)

    def _likely_fastest_first(self) -> list[tuple[str, Job, float]]:
        """Sorts modes by estimated duration, from the time of a few frames."""
        if len(self.jobs) == 1:
            return [(mode, job, 0.0) for mode, job in self.jobs.items()]
        seconds: dict[str, float] = {}
        for mode, job in self.jobs.items():
            part = replace(job, requests=[job.requests[-1][:FEW]], least_seconds=0.0)
            try:
                self.worker.time(part)  # excludes one-time setup, such as loading libraries
                seconds[mode] = self.worker.time(part).seconds * job.num_frames / part.num_frames
            except ReaderFailed:  # reported by the check
                seconds[mode] = float("inf")
        return sorted(((mode, job, seconds[mode]) for mode, job in self.jobs.items()), key=lambda found: found[2])

    def time(self) -> None:
        """Makes one timing."""
        if self.error is None:
            try:
                self.runs.append(self.worker.time(self.jobs[self.mode]))
            except ReaderFailed as error:
                self.error = str(error)

    def result(self, video: ComparedVideo, case: str, size: int, device: str) -> dict[str, Any]:
        """Returns the reader's row of the document."""
        job = self.jobs[self.mode]
        rates = [job.num_frames / run.seconds for run in self.runs] if self.error is None else []
        decoded = [run.decoded / max(1, job.num_frames) for run in self.runs if run.decoded is not None]
        peaks = [run.peak_bytes for run in self.runs if run.peak_bytes is not None]
        return {
            "reader": self.worker.reader,
            "video": video.name,
            "case": case,
            "batch_size": size,
            "device": device,
            "mode": self.mode,
            "requests": len(job.requests),
            "frames": job.num_frames,
            "rates": [round(rate, 2) for rate in rates],
            "median": round(statistics.median(rates), 2) if rates else None,
            "min": round(min(rates), 2) if rates else None,
            "max": round(max(rates), 2) if rates else None,
            "seconds": [round(run.seconds, 5) for run in self.runs],
            "wrong": len(self.wrong) if self.checked else None,
            "checked": self.checked,
            "tested": self.tested,
            "wrong_examples": [{"index": each.index, "got": each.got} for each in self.wrong[:EXAMPLES]],
            "decoded_per_delivered": round(statistics.median(decoded), 3) if decoded else None,
            "peak_memory_mb": round(max(peaks) / 1e6, 1) if peaks else None,
            "error": self.error,
        }


@dataclass
class _Cell:
    """One case on one video at one batch size on one device."""

    video: ComparedVideo
    case: str
    size: int
    device: str
    entries: list[CaseReader] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.video.name}, {self.case}"

    def results(self) -> list[dict[str, Any]]:
        """Returns the rows of readers with results."""
        have = (entry for entry in self.entries if entry.runs or entry.error)
        return [stamped(entry.result(self.video, self.case, self.size, self.device)) for entry in have]


class Bench:
    """A comparison of readers.

    Args:
        config: The configuration.
        videos: The videos.
        output: The JSON file, written after every case, atomically.
        command: The command line, for the document.
        search: Folders with modules of the user's own readers.
        num_threads: Decoder threads; 0 uses each library's default.
        known: Result of ``find_readers``.

    Attributes:
        document: The results so far.
    """

    def __init__(
        self,
        config: Config,
        videos: Sequence[ComparedVideo],
        output: Path,
        *,
        command: str = "",
        search: Sequence[str] = (),
        num_threads: int = 0,
        known: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        self._config = config
        self._videos = videos
        self._output = output
        self._num_threads = num_threads
        self._begin = time.monotonic()
        self._workers = {name: Worker(name, config.timeout, search) for name in config.readers}
        versions, readers = _describe(find_readers() if known is None else known, config)
        self.document: dict[str, Any] = {
            "format": FORMAT,
            "complete": False,
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "took_seconds": 0.0,
            "command": command,
            "machine": _machine(config),
            "versions": versions,
            "configuration": {**config.as_json(), "num_threads": num_threads},
            "videos": [video.facts for video in videos],
            "readers": readers,
            "results": [],
        }

    def run(self, report: Callable[[int, int, str], None]) -> None:
        """Measures everything.

        Args:
            report: Called with the steps done, the total number of steps, and a description.
        """
        cells = [
            _Cell(video, case, size, device)
            for video in self._videos
            for case in self._config.cases
            for size in self._config.sizes(case)
            for device in self._config.devices
        ]
        steps = len(cells) * (self._config.repeat + 1)
        done = itertools.count()
        try:
            self.save()
            # All cases are timed once, then again: a disturbance of a minute does not decide a case.
            for turn in range(self._config.repeat):
                for cell in cells:
                    if not turn:
                        self._prepare(cell, partial(report, next(done), steps))
                    self._time(cell, turn, partial(report, next(done), steps))
                    self.document["results"] = [row for each in cells for row in each.results()]
                    self.save()
            self.document["complete"] = True
        finally:
            for worker in self._workers.values():
                worker.close()
            self.document["results"] = [row for each in cells for row in each.results()]
            self.save()

    def _prepare(self, cell: _Cell, report: Callable[[str], None]) -> None:
        asked = requests(cell.case, cell.video.num_frames, cell.size, self._config)
        for name, worker in self._workers.items():
            if asked and cell.device in reader_class(name).devices:
                report(f"{cell.name}: checking {name}")
                entry = CaseReader(worker, self._jobs(name, cell.video, cell.device, asked))
                entry.prepare(cell.video)
                cell.entries.append(entry)

    def _time(self, cell: _Cell, turn: int, report: Callable[[str], None]) -> None:
        """Makes one timing of each reader. The order rotates, so that no reader always follows the slowest."""
        for place in range(len(cell.entries)):
            entry = cell.entries[(place + turn) % len(cell.entries)]
            report(f"{cell.name}: {entry.worker.reader}")
            entry.time()

    def _jobs(self, name: str, video: ComparedVideo, device: str, asked: list[list[int]]) -> dict[str, Job]:
        modes = reader_class(name).modes
        chosen = modes if self._config.mode == "best" else (self._config.mode,)
        least = self._config.least_seconds
        return {mode: Job(video.path, mode, device, asked, self._num_threads, least) for mode in chosen}

    def save(self) -> None:
        """Writes the document, atomically."""
        self.document["took_seconds"] = round(time.monotonic() - self._begin, 1)
        write(self._output, json.dumps(self.document, indent=1, allow_nan=False) + "\n", parents=True)


def find_readers() -> list[dict[str, Any]]:
    """Returns all readers, with reasons for unusable ones.

    Runs in another process: loading all libraries to check them would affect this one.
    """
    command = [sys.executable, "-m", "framefeed", "readers", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["readers"]
    except (ValueError, KeyError) as error:
        raise RuntimeError(f"`framefeed readers` failed: {done.stderr.strip()[-300:]}") from error
    return found


def _describe(found: Sequence[dict[str, Any]], config: Config) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Returns the versions of everything measured, and all readers."""
    versions = {"python": platform.python_version()}
    for package in ("framefeed", "torch", "numpy", "av"):
        versions[package] = installed_version(package) or "unknown"
    names = ("name", "version", "usable", "why", "exact", "remarks")
    rows = [{name: reader[name] for name in names} for reader in found]
    versions |= {row["name"]: row["version"] for row in rows if row["version"] is not None}
    for name in config.readers:
        if name not in {row["name"] for row in rows}:
            kind = reader_class(name)
            values = (name, None, True, "", kind.exact, kind.remarks)
            rows.append(dict(zip(names, values, strict=True)))
    return versions, rows


def _machine(config: Config) -> dict[str, Any]:
    found = machine(0)
    about: dict[str, Any] = {
        "cpu": found["cpu"],
        "cpus_used": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else found["cpus_used"],
        "memory_gb": found["memory_gib"],
        "os": found["os"],
        "python": platform.python_version(),
        "gpu": None,
    }
    if "cuda" in config.devices:
        import torch

        if torch.cuda.is_available():
            facts = torch.cuda.get_device_properties(0)
            about["gpu"] = {
                "name": facts.name,
                "driver": str(torch.version.cuda),
                "memory_gb": round(facts.total_memory / 2**30, 1),
            }
    return about
