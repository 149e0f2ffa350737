"""What a check finds, how it is made, and all of them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["REPORT_IT", "Check", "Device", "Finding", "Look", "Need", "Report", "State", "check_of", "one_line"]

Device = Literal["cpu", "cuda", "auto"]
State = Literal["ok", "problem", "not available"]
Need = Literal["cpu", "cuda", "hint"]

REPORT_IT = "report it, with the output of: framefeed doctor --json"


@dataclass(frozen=True)
class Check:
    """What was found about one thing.

    Attributes:
        name: The thing.
        needed_for: ``"cpu"`` for all of framefeed, ``"cuda"`` for GPUs, ``"hint"`` for nothing that must be there.
        state: ``"not available"`` is no fault: it is not there, or could not be looked at.
        fact: A version, a figure, or what is wrong.
        remedy: What to do about it; empty where nothing is to be done.
        details: The same for programs, where a line is too short for it.
    """

    name: str
    needed_for: Need
    state: State
    fact: str
    remedy: str = ""
    details: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Report:
    """The result of all checks.

    Attributes:
        device: What has to work: ``"cpu"``, ``"cuda"``, or ``"auto"`` for the CPU, and a GPU where there is one.
        checks: In the order they were made.
    """

    device: Device
    checks: tuple[Check, ...]

    @property
    def ready(self) -> bool:
        """Whether everything works that the device needs. With ``"auto"`` a GPU may be missing, or out of order."""
        return not self._problems("cpu") and (self.device != "cuda" or self.gpu_ready)

    @property
    def gpu_ready(self) -> bool:
        """Whether there is a GPU and nothing is wrong with it."""
        return self._state("NVIDIA driver") == "ok" and not self._problems("cuda")

    @property
    def verdict(self) -> str:
        """The report in one line."""
        hints = len(self._problems("hint"))
        return self._verdict() + (f"; {_count(hints, 'hint')}" if hints else "")

    def details(self, name: str) -> tuple[dict[str, Any], ...]:
        """The details of the check of that name; none where it was not made."""
        return next((check.details for check in self.checks if check.name == name), ())

    def _verdict(self) -> str:
        on_cpu, on_gpu = len(self._problems("cpu")), len(self._problems("cuda"))
        if on_cpu:
            return f"not ready: {_count(on_cpu + on_gpu, 'problem')}"
        if self.gpu_ready:
            return f"ready for the CPU and for {self._gpu()}"
        if self.device == "cuda":
            return f"not ready for cuda: {_count(on_gpu, 'problem')}; the CPU works"
        if on_gpu:
            return f"ready for the CPU; not for the GPU here: {_count(on_gpu, 'problem')}"
        return "ready for the CPU" + ("; no GPU here" if self.device == "auto" else "")

    def _gpu(self) -> str:
        gpus = self.details("decoding units")
        texts = [f"{gpu['device']} ({gpu['name']}, {_count(gpu['units'], 'decoding unit')})" for gpu in gpus[:1]]
        others = f"; {len(gpus) - 1} more not tried" if len(gpus) > 1 else ""
        return "".join(texts or ["cuda"]) + others

    def _problems(self, need: Need) -> list[Check]:
        return [check for check in self.checks if check.state == "problem" and check.needed_for == need]

    def _state(self, name: str) -> State | None:
        return next((check.state for check in self.checks if check.name == name), None)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


@dataclass(frozen=True)
class Finding:
    """A check without its name; see ``Check``."""

    state: State
    fact: str
    remedy: str = ""
    details: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Look:
    """How a check is made.

    Attributes:
        look: Makes it.
        remedy: What helps where it raises.
        needs: Checks that must be ok before it makes sense.
    """

    name: str
    needed_for: Need
    look: Callable[[], Finding]
    remedy: str = REPORT_IT
    needs: tuple[str, ...] = ()

    def run(self, before: Mapping[str, State]) -> Check:
        """Makes it, after others that were found to be so."""
        lacking = next((name for name in self.needs if before.get(name) != "ok"), None)
        if lacking is not None:
            return check_of(self.name, self.needed_for, Finding("not available", f"needs: {lacking}"))
        try:
            found = self.look()
        except Exception as error:  # whatever is broken: that is what is looked for
            found = Finding("problem", one_line(error), self.remedy)
        return check_of(self.name, self.needed_for, found)


def check_of(name: str, need: Need, found: Finding) -> Check:
    """A finding under its name."""
    return Check(name, need, found.state, found.fact, found.remedy, found.details)


def one_line(error: BaseException) -> str:
    """What an error says."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
