"""Cases of the GPU benchmark: contenders, timings, ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.clips import ClipSet
from benchmarks.gpu.bare import Bare, Packets
from benchmarks.gpu.device import Device
from benchmarks.gpu.ours import FULL, HALF, Loader, PeerContender, RandomBatches, Singles
from benchmarks.gpu.peers import InProcess, PeerFailed, PeerProcess, PeerTask, message
from benchmarks.harness import OURS, Contender, Entry, Work, in_turns

__all__ = ["CASES", "Bench", "Choice", "Pace", "endure", "measure", "ratios"]

CASES = ("in-order", "random", "shuffle", "singles")  # the most important first: time may run out
BARE = "decoders alone"
HALF_SIZE = "framefeed, 224x224 half"
SHORT_EPOCH = "framefeed, short epochs"
COPIES = 24  # of each file in an epoch: one of 1,800 frames is over in 0.2 s, and starting it would be measured too
SHUFFLED_COPIES = 4
KNOWN_SHARE, KNOWN_ON = 0.25, "cameras"
SHARES = (0.5, 0.25, 0.10)  # of all frames, which the memory is for that they may take
ENDURANCE_SHARE = 0.25
SINGLE_THREADS = (16, 32)
BATCH_THREADS = (1, 6)

LEAST_SECONDS = 0.3  # a timing is never made shorter than this
SECONDS_FOR_CHECKS = 3.0  # what checking and warming up take for each contender, about
ENDURANCE_BATCH, ENDURANCE_STEP = 16, 500


@dataclass
class Choice(Entry):
    """One contender in one case, at the best of several settings. Its errors are results, too.

    Attributes:
        settings: Makes the contender, for each setting. The best is timed.
        setting: That one.
        tried: The rate of each setting when it was tried, or its error.
        note: A remark on its checks.
        error: Why there are no timings.
    """

    contender: Contender = field(default_factory=lambda: Work(int))
    settings: dict[str, Callable[[], Contender]] = field(default_factory=dict)
    setting: str = ""
    tried: dict[str, float | str] = field(default_factory=dict)
    note: str = ""
    error: str | None = None
    contenders: dict[str, Contender] = field(default_factory=dict)

    def prepare(self, trial_seconds: float) -> None:
        """Checks and warms up all settings, and chooses the best."""
        best, wrong = 0.0, 0
        for setting, make in self.settings.items():
            try:
                contender = self.contenders[setting] = make()
                found = contender.check()
                wrong += found
                if found and not self.is_ours:
                    raise PeerFailed(f"{found} wrong frames")
                warm = contender.run(trial_seconds)
                run = contender.run(trial_seconds) if len(self.settings) > 1 else warm
            except Exception as error:
                self.tried[setting] = message(error)
                continue
            self.tried[setting] = round(run.rate, 1)
            if run.rate > best:
                best, self.setting, self.wrong, self.warm_up_seconds = run.rate, setting, found, warm.seconds
                self.contender = contender
        if not best:
            self.wrong = wrong
            self.error = "; ".join(dict.fromkeys(str(why) for why in self.tried.values()))

    def found(self) -> str:
        """Describes the outcome of that in a line."""
        if self.error is not None:
            return self.error
        rates = [f"{setting} {rate:,.0f}" if isinstance(rate, float) else rate for setting, rate in self.tried.items()]
        return f"{self.wrong} wrong, about{' ' * (len(rates) > 1)}{', '.join(rates)} frames/s"

    def time(self, seconds: float) -> None:
        """Takes a timing, unless there was an error."""
        self._noting_errors(lambda: super(Choice, self).time(seconds))

    def check(self) -> None:
        """Counts wrong frames, unless there was an error."""
        before = self.wrong
        self._noting_errors(super().check)
        if self.error is None and self.wrong > before and not self.is_ours:
            self.error = message(PeerFailed(f"{self.wrong - before} wrong frames after timing"))

    def _noting_errors(self, call: Callable[[], None]) -> None:
        try:
            if self.error is None:
                call()
        except Exception as error:
            self.error = message(error)

    def close(self) -> None:
        """Closes all of its contenders."""
        for contender in self.contenders.values():
            self.note = self.note or getattr(contender, "note", "")
            try:
                contender.close()
            except Exception as error:
                self.tried["at the end"] = message(error)
        self.contenders.clear()

    def row(self, digits: int = 3) -> dict[str, Any]:
        """Its results."""
        row: dict[str, Any] = {"name": self.name, "setting": self.setting, "wrong": self.wrong, "error": self.error}
        if self.runs and self.error is None:
            row |= {
                "median": round(self.median, 1),
                "min": round(min(self.rates), 1),
                "max": round(max(self.rates), 1),
                "rates": [round(rate, 1) for rate in self.rates],
                "frames": [run.frames for run in self.runs],
                "seconds": [round(run.seconds, digits) for run in self.runs],
            }
        if self.decoded is not None:
            row["decoded_per_delivered"] = self.decoded
        first = [run.first_seconds for run in self.runs if run.first_seconds is not None]
        if first:
            row["first_batch_ms"] = round(1000 * statistics.median(first), 1)
        if len(self.tried) > 1:
            row["tried"] = self.tried
        if self.note:
            row["note"] = self.note
        return row


@dataclass
class Bench:
    """Device, files and peers of all cases."""

    device: Device
    peers: PeerProcess | InProcess
    files: dict[str, list[Path]]
    with_peers: bool = True

    def entries(self, case: str, clips: ClipSet) -> list[Choice]:
        """The contenders of a case."""
        files = self.files[clips.name]
        loader = partial(Loader, self.device, files)
        if case == "shuffle":
            shuffled = partial(loader, FULL, order="shuffle", copies=SHUFFLED_COPIES, whole=True)
            total = SHUFFLED_COPIES * clips.total
            budgets = {share: int(total * share) * self.device.kept_bytes(clips.frame_bytes) for share in SHARES}
            entries = [
                _entry(f"{OURS}, memory for {share:.0%}", partial(shuffled, memory_budget=budget))
                for share, budget in budgets.items()
            ]
            if clips.name == KNOWN_ON:  # each of its timings has an epoch before it
                how = partial(shuffled, memory_budget=budgets[KNOWN_SHARE], known=True)
                entries.append(_entry(f"{OURS}, memory for {KNOWN_SHARE:.0%}, epochs known", how))
            return entries
        if case == "singles":
            return [
                _entry(f"{OURS}, {threads} threads", partial(Singles, self.device, files, threads))
                for threads in SINGLE_THREADS
            ]
        if case == "random":
            return [
                *(
                    _entry(f"{OURS}, {_threads(threads)}", partial(RandomBatches, self.device, files, threads))
                    for threads in BATCH_THREADS
                ),
                *self._peer_entries(clips),
            ]
        packets = cache(partial(Packets, files, clips.codec))
        decoders = cache(partial(Bare.make_decoders, self.device, clips))

        long = partial(loader, copies=COPIES, wave=self.device.num_decoders * clips.gop)

        def bare(bulk: bool) -> Contender:
            return Bare(self.device, clips, packets(), decoders(), bulk=bulk)

        return [
            Choice(BARE, settings={"each packet": partial(bare, False), "in pieces": partial(bare, True)}),
            _entry(OURS, partial(long, FULL)),
            _entry(HALF_SIZE, partial(long, HALF)),
            _entry(SHORT_EPOCH, partial(loader, FULL)),
            *self._peer_entries(clips, in_order=True),
        ]

    def _peer_entries(self, clips: ClipSet, *, in_order: bool = False) -> list[Choice]:
        if not self.with_peers:
            return []
        names = tuple(str(path) for path in self.files[clips.name])

        def make(reader: Any, way: Any, threads: int) -> Contender:
            return PeerContender(self.peers, PeerTask(reader, way, threads, names, clips.frames))

        if in_order:
            return [
                _entry(f"{reader}, {_threads(threads)}", partial(make, reader, "in order", threads))
                for reader in ("SimpleDecoder", "ThreadedDecoder")
                for threads in BATCH_THREADS
            ]
        return [
            *(
                _entry(f"SimpleDecoder, {_threads(threads)}", partial(make, "SimpleDecoder", "random", threads))
                for threads in BATCH_THREADS
            ),
            Choice("ThreadedDecoder", error="n/a: it gives frames in order only"),
        ]


def _entry(name: str, make: Callable[[], Contender]) -> Choice:
    return Choice(name, settings={"": make})


def _threads(number: int) -> str:
    return f"{number} thread{'s' if number > 1 else ''}"


# --- measuring ----------------------------------------------------------------------------------------------------


class Pace:
    """Length of timings, so that all of them end in time.

    Args:
        seconds: That a timing should take.
        repeat: Timings of each contender.
        entries: Contenders of each case.
        deadline: When all should be over, by ``time.perf_counter``.
    """

    def __init__(self, seconds: float, repeat: int, entries: list[int], deadline: float) -> None:
        self._seconds = seconds
        self._repeat = repeat
        self._left = sum(entries)
        self._deadline = deadline

    def next_case(self, entries: int) -> float | None:
        """Seconds of a timing in the next case; None when it is too late for it."""
        left = self._deadline - time.perf_counter()
        each = (left - self._left * SECONDS_FOR_CHECKS) / max(1, self._left * self._repeat)
        self._left -= entries
        return None if left <= 0 else max(min(self._seconds, LEAST_SECONDS), min(self._seconds, each))


def measure(
    case: str, clips: ClipSet, entries: list[Choice], device: Device, seconds: float, repeat: int, say: Any
) -> dict[str, Any]:
    """Checks all contenders, times them in turn so that a disturbance does not hit one alone, and checks them again."""
    start = time.perf_counter()
    memory = {"before": device.used_memory()}
    try:
        for entry in entries:
            if entry.error is None:
                say(f"{case}, {clips.name}: {entry.name}: checking")
                entry.prepare(min(seconds, 0.5))
                say(f"{case}, {clips.name}: {entry.name}: {entry.found()}")
        memory["warm"], created = device.used_memory(), device.decoders_created()
        for turn in in_turns(entries, repeat, seconds):
            say(f"{case}, {clips.name}: {turn + 1} of {repeat}: {_latest(entries)}")
        created = device.decoders_created() - created
        memory["after"] = device.used_memory()
        for entry in entries:
            entry.check()
    finally:
        for entry in entries:
            entry.close()
        device.release_memory()
    memory["closed"] = device.used_memory()
    return {
        "case": case,
        "on": clips.name,
        "unit": "frames/s",
        "entries": [entry.row() for entry in entries],
        "decoders_created_after_warm_up": created,
        "device_memory_mb": {name: round(used / 1e6) for name, used in memory.items()},
        "seconds_of_a_timing": round(seconds, 2),
        "took_seconds": round(time.perf_counter() - start, 1),
    }


def _latest(entries: list[Choice]) -> str:
    return ", ".join(f"{entry.name} {entry.runs[-1].rate:,.0f}" for entry in entries if entry.runs and not entry.error)


def ratios(results: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Returns ratios of medians by set, as far as they were measured."""
    wanted = {
        "in_order/bare": ("in-order", OURS, BARE),
        "in_order_short_epochs/bare": ("in-order", SHORT_EPOCH, BARE),
        "in_order/SimpleDecoder": ("in-order", OURS, "SimpleDecoder, 1 thread"),
        "in_order/SimpleDecoder, 6 threads": ("in-order", OURS, "SimpleDecoder, 6 threads"),
        "in_order/ThreadedDecoder": ("in-order", OURS, "ThreadedDecoder, 1 thread"),
        "in_order/ThreadedDecoder, 6 threads": ("in-order", OURS, "ThreadedDecoder, 6 threads"),
        "half224/full": ("in-order", HALF_SIZE, OURS),
        "random64/SimpleDecoder": ("random", f"{OURS}, 1 thread", "SimpleDecoder, 1 thread"),
        "random64/SimpleDecoder, 6 threads": ("random", f"{OURS}, 6 threads", "SimpleDecoder, 6 threads"),
    }
    medians = {
        (result["on"], result["case"], row["name"]): row["median"]
        for result in results
        for row in result["entries"]
        if row.get("median")
    }
    found: dict[str, dict[str, float]] = {}
    for clips in dict.fromkeys(result["on"] for result in results):
        for name, (case, one, other) in wanted.items():
            if (clips, case, one) in medians and (clips, case, other) in medians:
                ratio = medians[clips, case, one] / medians[clips, case, other]
                found.setdefault(clips, {})[name] = round(ratio, 3)
    return found


def endure(device: Device, clips: ClipSet, files: list[Path], num_batches: int, say: Any) -> dict[str, Any]:
    """Many small batches in random order: does device memory grow, are decoders made?"""
    step = min(ENDURANCE_STEP, max(1, num_batches // 4))
    budget = int(clips.total * ENDURANCE_SHARE) * 224 * 224 * 3
    loader = Loader(device, files, HALF, order="shuffle", memory_budget=budget, batch_size=ENDURANCE_BATCH)
    samples: list[int] = []
    created: list[int] = []
    start, count = time.perf_counter(), 0
    while count < num_batches:
        for _ in loader.loader:
            count += 1
            if count % step == 0:
                device.synchronize()
                samples.append(device.used_memory())
                created.append(device.decoders_created())
                say(f"endurance: {count} of {num_batches} batches, {samples[-1] / 1e6:,.0f} MB")
            if count == num_batches:
                break
    took = time.perf_counter() - start
    wrong = loader.check()
    loader.close()
    return {
        "on": clips.name,
        "batches": count,
        "batch_size": ENDURANCE_BATCH,
        "every": step,
        "frames_per_second": round(count * ENDURANCE_BATCH / took, 1),
        "first_mb": round(samples[0] / 1e6, 1),
        "max_mb": round(max(samples) / 1e6, 1),
        "last_mb": round(samples[-1] / 1e6, 1),
        "samples_mb": [round(used / 1e6, 1) for used in samples],
        "decoders_created_after_warm_up": created[-1] - created[0],
        "wrong": wrong,
    }
