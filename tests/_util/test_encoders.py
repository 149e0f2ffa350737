"""Encoders leave no threads behind that go before everything else on the machine, and know its CPU."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from framefeed._util import encoders
from framefeed._util.encoders import usual_priority
from framefeed.testing.samples import write_clip

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="needs Linux")


def _raise_priority() -> None:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pytest.skip("not allowed to raise priorities here")


def test_what_a_library_takes_is_given_back() -> None:
    policy, end = os.sched_getscheduler(0), threading.Event()
    with usual_priority():
        _raise_priority()
        thread = threading.Thread(target=end.wait)
        thread.start()
    try:
        assert thread.native_id is not None
        assert os.sched_getscheduler(0) == os.sched_getscheduler(thread.native_id) == policy
    finally:
        end.set()
        thread.join()


def test_it_keeps_what_was_chosen() -> None:
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        _raise_priority()
        with usual_priority():
            pass
        assert os.sched_getscheduler(0) == os.SCHED_FIFO
    finally:
        os.sched_setscheduler(0, policy, parameters)


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libvpx-vp9", "libsvtav1"])
def test_encoders(codec: str, tmp_path: Path) -> None:
    policy = os.sched_getscheduler(0)
    write_clip(tmp_path / "clip.mp4", codec=codec, frames=3, width=96, height=64)
    assert os.sched_getscheduler(0) == policy


def test_the_cpu_is_known_with_and_without_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = encoders._has_avx512()
    monkeypatch.setattr(encoders, "_CPU", str(tmp_path / "none"))
    assert encoders._has_avx512() == told
    for flags, expected in (("fpu avx2 avx512f avx512bw", True), ("fpu avx2", False)):
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {flags}\n")
        monkeypatch.setattr(encoders, "_CPU", str(tmp_path / "cpuinfo"))
        assert encoders._has_avx512() == expected
