"""Checks, their findings, and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["REPORT_IT", "Check", "Device", "Finding", "Need", "Probe", "Report", "State", "check_of", "one_line"]

Device = Literal["cpu", "cuda", "auto"]
State = Literal["ok", "problem", "not available"]
Need = Literal["cpu", "cuda", "hint"]

REPORT_IT = "report it, with the output of: framefeed doctor --json"


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        name: Subject of the check.
        needed_for: ``"cpu"`` for all of framefeed, ``"cuda"`` for GPUs, ``"hint"`` for optional advice.
        state: ``"not available"`` is not a fault: the subject is absent, or could not be checked.
        fact: A version, a figure, or the problem.
        remedy: Advice; empty if nothing is to be done.
        details: The finding for programs, if a line is too short for it.
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
        device: The device that has to work: ``"cpu"``, ``"cuda"``, or ``"auto"`` for the CPU, and a GPU if there is
            one.
        checks: The checks in the order in which they ran.
    """

    device: Device
    checks: tuple[Check, ...]

    @property
    def ready(self) -> bool:
        """True if everything works that the device needs. With ``"auto"`` a GPU may be missing or broken."""
        return not self._problems("cpu") and (self.device != "cuda" or self.gpu_ready)

    @property
    def gpu_ready(self) -> bool:
        """True if there is a GPU without problems."""
        return self._state("NVIDIA driver") == "ok" and not self._problems("cuda")

    @property
    def verdict(self) -> str:
        """Summary of the report in one line."""
        hints = len(self._problems("hint"))
        return self._verdict() + (f"; {_count(hints, 'hint')}" if hints else "")

    def details(self, name: str) -> tuple[dict[str, Any], ...]:
        """Returns the details of the check of that name; empty if it did not run."""
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
    """The finding of a check without its name; see ``Check``."""

    state: State
    fact: str
    remedy: str = ""
    details: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Probe:
    """A check that can be run.

    Attributes:
        check: Runs the check.
        remedy: Advice if it raises.
        needs: Checks that must be ok before this one.
    """

    name: str
    needed_for: Need
    check: Callable[[], Finding]
    remedy: str = REPORT_IT
    needs: tuple[str, ...] = ()

    def run(self, before: Mapping[str, State]) -> Check:
        """Runs the check, given the states of those before it."""
        lacking = next((name for name in self.needs if before.get(name) != "ok"), None)
        if lacking is not None:
            return check_of(self.name, self.needed_for, Finding("not available", f"needs: {lacking}"))
        try:
            found = self.check()
        except Exception as error:  # any failure is a finding
            found = Finding("problem", one_line(error), self.remedy)
        return check_of(self.name, self.needed_for, found)


def check_of(name: str, need: Need, found: Finding) -> Check:
    """Returns a finding under its name."""
    return Check(name, need, found.state, found.fact, found.remedy, found.details)


def one_line(error: BaseException) -> str:
    """Returns the type and message of an error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
