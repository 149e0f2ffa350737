"""Commands that pages show: whether they exist with these options, by their own parsers; the cheap ones are run."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from docs.pages import ROOT
from framefeed.cli import _join_signed, build_parser, main

__all__ = ["check", "command_names", "run"]

# Programs of others: nobody here can say which options they have.
FOREIGN = {"apt-get", "cd", "export", "git", "nsys", "ray", "source", "tensorboard", "ulimit"}

# Those that take seconds on small files.
CHEAP = {"diff", "doctor", "frames", "index", "infer", "info", "pack", "prepare", "readers", "sampling", "verify"}

_TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8")))
_PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
_EXTRAS = set(
    re.findall(r"(?m)^([a-z]+) = \[", _PROJECT.partition("[project.optional-dependencies]")[2].partition("\n[")[0])
)


class _Parsed(Exception):
    """The arguments were understood; nothing further is to happen."""


def check(words: Sequence[str]) -> None:
    """Fails where a command does not exist, or not with these options."""
    program, rest = Path(words[0]).name, list(words[1:])
    if program == "framefeed":
        if "..." in rest or (len(rest) == 1 and not rest[0].startswith("-")):  # `framefeed verify` names a command
            assert rest[0] in command_names(), words
        else:
            build_parser().parse_args(_join_signed(rest))
    elif program in ("python", "python3"):
        _check_python(rest)
    elif program == "make":
        targets = [word for word in rest if "=" not in word]
        assert set(targets) <= _TARGETS, f"{' '.join(words)}: the Makefile has {sorted(_TARGETS)}"
    elif program == "pip":
        _check_pip(rest)
    else:
        assert program in FOREIGN, f"{' '.join(words)}: add it to FOREIGN if it is somebody else's program"


def command_names() -> set[str]:
    """All commands of framefeed."""
    action = next(each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    return set(action.choices)


def _check_python(words: list[str]) -> None:
    if words[:2] == ["-m", "torch.distributed.run"]:
        words = words[2:]
        while words[0].startswith("-"):
            words = words[1:]
    if words[0] == "-m":
        if words[1].partition(".")[0] in ("benchmarks", "framefeed"):
            _parse(_file_of(words[1]), words[2:])
        else:
            assert words[1] in {"http.server", "mkdocs", "pip", "pytest", "venv"}, words
    elif words[0].startswith(("benchmarks/", "docs/", "examples/")):
        assert (ROOT / words[0]).exists(), f"there is no {words[0]}"
        _parse(ROOT / words[0], words[1:])


def _file_of(module: str) -> Path:
    """What ``python -m`` starts."""
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None, f"there is no {module}"
    return Path(found.origin).with_name("__main__.py") if found.submodule_search_locations else Path(found.origin)


def _parse(script: Path, arguments: list[str]) -> None:
    """Starts a program, and stops it as soon as it has understood its arguments."""
    if "parse_args" not in script.read_text("utf-8"):
        return  # it takes its arguments as they are
    understand = argparse.ArgumentParser.parse_args

    def parse(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> NoReturn:
        self.allow_abbrev = False
        understand(self, args, namespace)
        raise _Parsed

    path, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(script.parent))
    try:
        with (
            mock.patch.object(argparse.ArgumentParser, "parse_args", parse),
            mock.patch.object(sys, "argv", [str(script), *arguments]),
        ):
            runpy.run_path(str(script), run_name="__main__")
        raise AssertionError(f"{script}: it has not looked at its arguments")
    except _Parsed:
        pass
    except SystemExit as stopped:
        assert stopped.code == 0, f"{script} does not take {arguments}"  # 0: help
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - known:  # examples have neighbours of equal names
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == script.parent:
                del sys.modules[name]


def _check_pip(words: list[str]) -> None:
    assert words[0] == "install"
    for word in words[1:]:
        found = re.fullmatch(r"(?:\.|framefeed)\[(.+)\]", word)
        assert found is None or set(found[1].split(",")) <= _EXTRAS, f"{word}: there are {sorted(_EXTRAS)}"
    for flag, name in itertools.pairwise(words):
        assert flag != "-c" or (ROOT / name).exists(), f"there is no {name}"


def run(words: Sequence[str]) -> bool:
    """Runs a command if it is a cheap one of framefeed's; returns whether it was."""
    if words[0] != "framefeed" or words[1] not in CHEAP or "--ray" in words:
        return False
    try:
        code = main(list(words[1:]))
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    assert code == 0, f"{' '.join(words)}: exit code {code}"
    return True
