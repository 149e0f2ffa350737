"""Is this installation fit for use: the checks behind ``framefeed doctor``, as values.

A check never raises: what goes wrong in it is its result, and the next one runs. Those that touch a GPU's driver run in
a child process (``python -m framefeed.doctor``): a driver that crashes or hangs costs a line of the report, not the
report.

Nothing heavy is imported before the check that needs it, since a broken torch or PyAV is what is looked for.
"""

from __future__ import annotations

from collections.abc import Callable

from framefeed.doctor.child import ask_child
from framefeed.doctor.cpu import cpu_looks
from framefeed.doctor.report import Check, Device, Need, Report, State

__all__ = ["Check", "Device", "Need", "Report", "State", "examine"]

Progress = Callable[[int, int], None]


def examine(device: Device = "auto", *, progress: Progress | None = None) -> Report:
    """Looks at everything that framefeed needs, and decodes a small clip.

    Args:
        device: What has to work. ``"cpu"`` leaves GPUs alone.
        progress: Called with the checks done and the checks in all.
    """
    looks = cpu_looks()
    total = len(looks) + (device != "cpu")
    checks: list[Check] = []
    for look in looks:
        if progress is not None:
            progress(len(checks), total)
        checks.append(look.run({}))
    if device != "cpu":
        if progress is not None:
            progress(len(checks), total)
        checks += ask_child(required=device == "cuda")
    return Report(device, tuple(checks))
