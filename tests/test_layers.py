"""A package imports only packages above it in the list, and each outside library is known in few places only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import framefeed

ROOT = Path(framefeed.__file__).parent

# A package imports those above it and those to the left of it. "public" stands for the names of `framefeed` itself:
# code that uses them can use all that is above.
LAYERS = (
    ("_util", "charts"),
    ("errors", "types"),
    ("media", "cuda"),
    ("index",),
    ("catalog", "plan", "source"),
    ("store", "decode", "convert"),
    ("request", "device", "decoder", "batch"),
    ("dataset", "packets", "loader"),
    ("transforms", "sampling", "public"),
    ("testing", "doctor", "readers", "infer"),
    ("prepare", "compare"),
    ("cli", "__main__"),
)
ORDER = tuple(layer for row in LAYERS for layer in row)

KNOWS_PYAV = (
    "media/ffmpeg.py",
    "media/opening.py",
    "index/",
    "source/",
    "decode/cpu/session_cpu.py",
    "decode/cpu/unwritten.py",
    "convert/cpu/swscale.py",
    "testing/",
    "compare/",
    "doctor/",
    "prepare/",
)
OTHER_READERS = ("cv2", "decord", "nvidia", "python_vali", "spdl", "torchcodec", "torchvision")
LIGHT = ("index/", "plan/", "source/", "decode/")


@dataclass(frozen=True)
class Import:
    """One imported module.

    Attributes:
        file: Who imports, relative to the package.
        module: What is imported, in full.
        at_top: Whether that happens when ``file`` is loaded.
    """

    file: str
    module: str
    at_top: bool


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _walk(node: ast.AST, at_top: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        deeper = (
            at_top and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_type_checking(child)
        )
        yield child, at_top
        yield from _walk(child, deeper)


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0 and node.module is not None, "imports are absolute"
        if node.module == "framefeed":
            return [f"framefeed.{alias.name}" for alias in node.names]
        return [node.module]
    return []


def _imports() -> Iterator[Import]:
    for path in sorted(ROOT.rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        if file != "__init__.py":  # the door itself
            for node, at_top in _walk(ast.parse(path.read_text("utf-8")), True):
                yield from (Import(file, module, at_top) for module in _modules(node))


IMPORTS = tuple(_imports())


def _layer(name: str) -> str:
    return "public" if name in framefeed.__all__ or name == "__version__" else name


def _layer_of_file(file: str) -> str:
    return Path(file).parts[0].removesuffix(".py")


def _layer_of_module(module: str) -> str:
    parts = module.split(".")
    return _layer(parts[1]) if len(parts) > 1 else "public"


@pytest.mark.parametrize("layer", sorted({_layer_of_file(found.file) for found in IMPORTS}))
def test_layer_imports_only_what_is_above_it(layer: str) -> None:
    assert layer in ORDER, f"put {layer} where it belongs in LAYERS"
    wrong = [
        f"{found.file} imports {found.module}"
        for found in IMPORTS
        if _layer_of_file(found.file) == layer and found.module.split(".")[0] == "framefeed"
        if ORDER.index(_layer_of_module(found.module)) > ORDER.index(layer)
    ]
    assert wrong == []


def test_contributing_names_every_package() -> None:
    named = re.findall(r"^\| (`.*?`) \|", (ROOT.parents[1] / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    packages = [name.rstrip("/").removesuffix(".py") for row in named for name in re.findall("`(.*?)`", row)]
    there = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert set(packages) == there - {"__init__", "__main__", "__pycache__", "py.typed"}
    assert packages == [layer for layer in ORDER if layer in packages], "the table is in the order of LAYERS"
    assert len(ORDER) == len(set(ORDER))


def test_the_package_never_imports_benchmarks() -> None:
    assert [found for found in IMPORTS if found.module.split(".")[0] in ("benchmarks", "tests")] == []


PLANNED = {"Attempt", "Cursor", "Losses", "Plan", "Probed"}
"""Values that planning and decoding pass to each other."""


def test_decoding_decides_nothing() -> None:
    for path in (ROOT / "decode").rglob("*.py"):
        for node, _ in _walk(ast.parse(path.read_text("utf-8")), True):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("framefeed.plan"):
                names = {alias.name for alias in node.names}
                assert node.module == "framefeed.plan" and names <= PLANNED, f"{path} imports {names} of {node.module}"


def test_pyav_is_known_in_few_places() -> None:
    knows = {found.file for found in IMPORTS if found.module.split(".")[0] == "av"}
    assert [file for file in sorted(knows) if not file.startswith(KNOWS_PYAV)] == []


@pytest.mark.parametrize(
    ("library", "place"),
    [
        ("PyNvVideoCodec", "decode/nvdec/capabilities.py"),
        ("triton", "convert/cuda/kernels.py"),
        ("kornia", "transforms/library.py"),
        ("onnx", "testing/shapes_onnx.py"),
        ("onnxruntime", "infer/engines/onnx.py"),
        ("ray", "infer/ray.py"),
        ("tensorrt", "infer/engines/tensorrt.py"),
    ],
)
def test_optional_libraries_are_known_in_one_place(library: str, place: str) -> None:
    assert {found.file for found in IMPORTS if found.module.split(".")[0] == library} == {place}


@pytest.mark.parametrize("library", OTHER_READERS)
def test_other_readers_are_known_to_readers_and_benchmarks_only(library: str) -> None:
    knows = {found.file for found in IMPORTS if found.module.split(".")[0] == library}
    suppresses = {"infer/detection/suppress.py"} if library in ("cv2", "torchvision") else set()
    assert [file for file in sorted(knows - suppresses) if not file.startswith(("readers/", "compare/"))] == []


def test_readers_load_their_libraries_when_they_are_made() -> None:
    outside = {*OTHER_READERS, "av", "PyNvVideoCodec", "torch"}
    loaded = [found for found in IMPORTS if found.file.startswith("readers/") and found.at_top]
    assert [found for found in loaded if found.module.split(".")[0] in outside] == []


def test_lower_layers_load_without_torch() -> None:
    heavy = {found.file for found in IMPORTS if found.module.split(".")[0] == "torch" and found.at_top}
    assert [file for file in sorted(heavy) if file.startswith(LIGHT)] == []


def test_commands_load_without_anything_heavy() -> None:
    outside = {"av", "numpy", "pyarrow", "rich", "torch"}
    heavy = [found for found in IMPORTS if found.at_top and found.module.split(".")[0] in outside]
    assert {found.file for found in heavy if found.file.startswith("cli/")} == {"cli/console.py"}
    assert {found.module.split(".")[0] for found in heavy if found.file.startswith("cli/")} == {"rich"}


def test_the_walk_finds_imports() -> None:
    assert Import("decode/cpu/session_cpu.py", "av", True) in IMPORTS
    assert Import("decoder/video_decoder.py", "torch", True) in IMPORTS
    assert any(found.file == "convert/transforms.py" and found.module == "torch" for found in IMPORTS)
    assert not any(found.file == "types.py" and found.module == "torch" and found.at_top for found in IMPORTS)


@pytest.mark.parametrize(("one", "other"), [("infer", "prepare"), ("prepare", "infer")])
def test_infer_and_prepare_are_independent(one: str, other: str) -> None:
    found = [found.file for found in IMPORTS if _layer_of_file(found.file) == one]
    assert found
    wrong = [each for each in IMPORTS if each.file in found and each.module.startswith(f"framefeed.{other}")]
    assert wrong == []
