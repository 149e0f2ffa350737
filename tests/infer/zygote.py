"""A process that has everything imported and forks a child for each run, so that runs can be killed quickly.

It is started as a script and told what to do line by line on its input; each answer is a line on its output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any


class Zygote:
    """The test's side."""

    def __enter__(self) -> Zygote:
        command = [sys.executable, "-W", "ignore", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def start(self, arguments: dict[str, Any], crash_at: int | None = None) -> int:
        """Starts a run; returns the number of its process."""
        return int(self._ask({"run": arguments, "crash_at": crash_at}))

    def wait(self, child: int) -> int:
        """Waits for a run's end; returns its exit status, negative for a signal."""
        return int(self._ask({"wait": child}))

    def _ask(self, what: dict[str, Any]) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


STEPS = ("pwrite", "fsync", "replace", "unlink", "rmdir", "mkdir", "ftruncate")
"""Calls of the operating system that change what is on the disk, before each of which a run may be killed."""


def _crash_at(step: int) -> None:
    """Kills this process before the step-th change of what is on the disk."""
    left = [step]

    def counted(call: Any) -> Any:
        def instead(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), 9)
            return call(*arguments, **named)

        return instead

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))


def serve() -> None:
    """The other side."""
    import onnxruntime  # noqa: F401
    import pyarrow.csv
    import torch

    from framefeed import infer
    from framefeed.catalog import build as catalog_build  # noqa: F401
    from framefeed.decode.cpu import session_cpu as cpu  # noqa: F401
    from framefeed.index import order, scan  # noqa: F401
    from framefeed.infer import api  # noqa: F401
    from framefeed.infer.detection.suppress import find_suppressor

    find_suppressor()
    pyarrow.array(torch.zeros(1).numpy())  # loads pandas, where it is there
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            print(os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1]), flush=True)
            continue
        child = os.fork()
        if not child:
            torch.set_num_threads(1)
            if asked["crash_at"] is not None:
                _crash_at(asked["crash_at"])
            try:
                infer.run(**asked["run"])
                os._exit(0)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
        print(child, flush=True)


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent]
    serve()
