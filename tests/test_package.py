"""The built package: the wheel holds the library alone, and works where it is installed without the repository."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import framefeed

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    _run("build", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    return folder


def _run(*arguments: str, cwd: Path, path: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_wheel_holds_the_library_alone(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        (metadata,) = (name for name in held if name.endswith(".dist-info/METADATA"))
        version = email.message_from_bytes(archive.read(metadata))["Version"]
    source = Path(framefeed.__file__).parent
    modules = {f"framefeed/{path.relative_to(source).as_posix()}" for path in source.rglob("*.py")}
    information = metadata.removesuffix("METADATA")
    notes = {information + name for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    assert held == modules | {"framefeed/py.typed"} | notes
    assert version == framefeed.__version__


def test_sdist_holds_the_repository_alone(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = [Path(*Path(name).parts[1:]) for name in archive.getnames()]
    assert {"LICENSE", "CHANGELOG.md", "tests/test_package.py"} <= {path.as_posix() for path in held}
    made = {"__pycache__", ".venv", ".venv-bench", ".bench", ".coverage", "dist", "site"}
    assert not [path for path in held if made.intersection(path.parts)]


def test_installed_wheel_runs(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    installed = tmp_path / "installed"
    options = ("--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(installed))
    _run("pip", "install", *options, str(wheel), cwd=tmp_path)
    (tmp_path / "origin.py").write_text("import framefeed\n\nprint(framefeed.__file__)\n")
    assert _run("origin", cwd=tmp_path, path=installed).strip() == str(installed / "framefeed/__init__.py")
    assert _run("framefeed", "--version", cwd=tmp_path, path=installed) == f"framefeed {framefeed.__version__}\n"
