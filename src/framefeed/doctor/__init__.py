"""Checks of an installation, behind ``framefeed doctor``.

A check never raises: a failure is its result, and the next check runs. Checks that touch a GPU's driver run in a child
process (``python -m framefeed.doctor``), so a driver that crashes or hangs costs a line of the report, not the report.

Nothing heavy is imported before the check that needs it, because a broken torch or PyAV is one of the problems to find.
"""

from __future__ import annotations

from collections.abc import Callable

from framefeed.doctor.child import ask_child
from framefeed.doctor.cpu import cpu_probes
from framefeed.doctor.report import Check, Device, Need, Report, State

__all__ = ["Check", "Device", "Need", "Report", "State", "examine"]

Progress = Callable[[int, int], None]


def examine(device: Device = "auto", *, progress: Progress | None = None) -> Report:
    """Checks everything that framefeed needs, and decodes a small clip.

    Args:
        device: The device that has to work. ``"cpu"`` skips GPUs.
        progress: Called with the number of finished checks and of all checks.
    """
    probes = cpu_probes()
    total = len(probes) + (device != "cpu")
    checks: list[Check] = []
    for probe in probes:
        if progress is not None:
            progress(len(checks), total)
        checks.append(probe.run({}))
    if device != "cpu":
        if progress is not None:
            progress(len(checks), total)
        checks += ask_child(required=device == "cuda")
    return Report(device, tuple(checks))
