"""Memory and CPUs: what containers and batch systems allow counts, not what the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch

from framefeed._util import limits as machine
from framefeed._util.limits import Limits, available_cpus, budget_bytes, physical_memory, read_limits, usable_memory

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
SEPARATE = """\
25 20 0:22 / /proc rw - proc proc rw
31 30 0:27 {top} /sys/fs/cgroup/memory rw,relatime shared:14 - cgroup cgroup rw,memory
32 30 0:28 {top} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
"""
NO_LIMIT_V1 = str((1 << 63) - 4096)


def machine_with(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_container_of_version_2(tmp_path: Path) -> None:
    """With a namespace of its own, the container's group is the root."""
    root = machine_with(
        tmp_path,
        "0::/\n",
        UNIFIED,
        {"sys/fs/cgroup/memory.max": "8589934592\n", "sys/fs/cgroup/cpu.max": "350000 100000\n"},
    )
    assert read_limits(root) == Limits(8 << 30, 3.5)


def test_groups_above_count(tmp_path: Path) -> None:
    """A batch system bounds the job; the step's own group says "max"."""
    root = machine_with(
        tmp_path,
        "0::/slurm/job_7/step_0\n",
        UNIFIED,
        {
            "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
            "sys/fs/cgroup/slurm/job_7/step_0/cpu.max": "max 100000\n",
            "sys/fs/cgroup/slurm/job_7/memory.max": "4294967296\n",
            "sys/fs/cgroup/slurm/job_7/memory.high": "3221225472\n",
            "sys/fs/cgroup/slurm/cpu.max": "1600000 100000\n",
            "sys/fs/cgroup/other/memory.max": "1\n",
        },
    )
    assert read_limits(root) == Limits(3 << 30, 16)


@pytest.mark.parametrize(
    ("top", "group"), [("/docker/4f2a", ""), ("/", "docker/4f2a")], ids=["only its own is mounted", "all are"]
)
def test_a_container_of_version_1(tmp_path: Path, top: str, group: str) -> None:
    cgroup = "12:memory:/docker/4f2a\n4:cpu,cpuacct:/docker/4f2a\n1:name=systemd:/docker/4f2a\n0::/\n"
    root = machine_with(
        tmp_path,
        cgroup,
        SEPARATE.format(top=top),
        {
            f"sys/fs/cgroup/memory/{group}/memory.limit_in_bytes": "2147483648\n",
            f"sys/fs/cgroup/cpu,cpuacct/{group}/cpu.cfs_quota_us": "50000\n",
            f"sys/fs/cgroup/cpu,cpuacct/{group}/cpu.cfs_period_us": "100000\n",
        },
    )
    assert read_limits(root) == Limits(2 << 30, 0.5)


def test_no_limits(tmp_path: Path) -> None:
    assert read_limits(tmp_path) == Limits(math.inf, math.inf)  # no control groups at all
    root = machine_with(
        tmp_path,
        "3:memory:/\n2:cpu,cpuacct:/\n",
        SEPARATE.format(top="/"),
        {
            "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT_V1,
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert read_limits(root).cpus == math.inf
    assert read_limits(root).memory > physical_memory()


def test_limits_are_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for limits, memory, cpus in (
        (Limits(), physical_memory(), 8),
        (Limits(1 << 30, 1.5), 1 << 30, 2),
        (Limits(1e30, 64), physical_memory(), 8),
        (Limits(1e30, 0.1), physical_memory(), 1),
    ):
        monkeypatch.setattr(machine, "_limits", lambda limits=limits: limits)
        assert (usable_memory(), available_cpus()) == (memory, cpus)


def test_a_default_budget_is_shared_by_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_limits", lambda: Limits(memory=1 << 30))
    cpu = torch.device("cpu")
    assert budget_bytes(None, cpu, 4) == 256 << 20
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert budget_bytes(None, cpu, 4) == 128 << 20
    assert budget_bytes("1GiB", cpu, 4) == 1 << 30


def test_a_gpu_that_others_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of all, but no more than half of what is free, or kept unused by torch."""
    free, reserved, allocated = 100 << 30, 0, 0
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 140 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: reserved)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: allocated)
    gpu = torch.device("cuda", 0)
    assert budget_bytes(None, gpu, 4) == 35 << 30
    free = 8 << 30
    assert budget_bytes(None, gpu, 4) == 4 << 30
    reserved, allocated = 30 << 30, 10 << 30
    assert budget_bytes(None, gpu, 4) == 14 << 30
