"""Looks at a GPU in a child process: a driver that crashes or hangs costs a line of the report, not the report."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import IO, get_args

from framefeed._util.process.worker_process import death
from framefeed.doctor.gpu import REINSTALL_DRIVER, gpu_probes
from framefeed.doctor.report import Check, Finding, Need, State, check_of, one_line

__all__ = ["ask_child", "main"]

CHILD_SECONDS = 120.0  # a cold start of torch, CUDA, Triton and two decoders takes 20 or more
MOST_WORDS = 200  # characters of what it said before it crashed
KILL_SECONDS = 5.0  # a process that hangs inside the kernel cannot be ended: it is left behind


def _gpu_checks(required: bool) -> Iterator[Check]:
    states: dict[str, State] = {}
    for look in gpu_probes(required):
        check = look.run(states)
        states[check.name] = check.state
        yield check


def _child_command(required: bool) -> list[str]:
    return [sys.executable, "-m", "framefeed.doctor", "cuda" if required else "auto"]


def ask_child(required: bool) -> list[Check]:
    """The checks of the GPU, by a child. The one in which it crashed or hung is a problem, those behind it are open."""
    try:
        said, complaints, ending = _run_child(required)
    except OSError as error:
        said, complaints, ending = [], [], f"could not be started ({one_line(error)})"
    found, noise = _parse(said)
    stopped = _stopped(ending or "ended without an answer", complaints or noise)
    checks: list[Check] = []
    stopped_at = ""
    for look in gpu_probes(required):
        if look.name in found:
            checks.append(found[look.name])
        elif not stopped_at:
            stopped_at = look.name
            checks.append(check_of(look.name, "cuda", stopped))
        else:
            not_reached = Finding("not available", f"not looked at, because of: {stopped_at}")
            checks.append(check_of(look.name, "cuda", not_reached))
    if ending and not stopped_at:
        checks.append(check_of("leaving the GPU", "cuda", stopped))
    return checks


def _stopped(ending: str, words: list[str]) -> Finding:
    said = f"; it said: {words[-1][:MOST_WORDS]}" if words else ""
    remedy = f"to see more, run: python -m framefeed.doctor; where the driver is to blame, {REINSTALL_DRIVER}"
    return Finding("problem", f"the process that looked at it {ending}{said}", remedy)


def _run_child(required: bool) -> tuple[list[str], list[str], str]:
    """The lines that the child wrote to stdout and to stderr, and how it ended if not well."""
    # Files and no pipes: reading them never waits for a process that cannot be ended.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            _child_command(required), stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            ending = _ending(process.wait(CHILD_SECONDS))
        except subprocess.TimeoutExpired:
            ending = f"did not answer within {CHILD_SECONDS:.0f} s"
        finally:
            _end(process)
        return _lines(out), _lines(err), ending


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}" if code else ""
    return f"crashed ({death(code)})"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the child and what it has started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)


def _parse(lines: Iterable[str]) -> tuple[dict[str, Check], list[str]]:
    """The checks among the lines, by name, and all other lines."""
    found: dict[str, Check] = {}
    noise: list[str] = []
    for line in lines:
        try:
            values = json.loads(line)
            check = Check(**{**values, "details": tuple(values["details"])})
            if check.state not in get_args(State) or check.needed_for not in get_args(Need):
                raise ValueError
            found[check.name] = check
        except (ValueError, TypeError, KeyError):
            noise.append(line)
    return found, noise


def main() -> None:
    """The child: a line of JSON for each check, as soon as it is made."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    for check in _gpu_checks(required="cuda" in sys.argv[1:]):
        answers.write(json.dumps(asdict(check)) + "\n")
        answers.flush()
