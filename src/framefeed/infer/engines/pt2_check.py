"""Check of ``.pt2`` files for code that loading would run.

``torch.export.load`` trusts its input: it falls back to unrestricted unpickling, passes text of the file to Python's
compiler (guards, node names, sizes through SymPy), and looks operators up by any name. Files that
``torch.export.save`` writes for a model of plain tensor operations need none of that. So before torch opens a file,
everything in it is compared with what such files contain.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import torch

from framefeed.errors import ModelError

__all__ = ["check_pt2"]

# Files that every such archive has.
_RECORD = re.compile(
    r"archive_format|archive_version|byteorder|\.data/\w+|models/model\.json|data/weights/weight_\d+"
    r"|data/constants/tensor_\d+|data/(weights/model_weights|constants/model_constants)_config\.json"
    r"|data/sample_inputs/model\.pt|extra/[^/]+"
)
# Their names in torch up to 2.7, and in 2.8.
_EARLIER = re.compile(r"serialized_exported_program\.json|[^/]*/data/(weights|constants)/model\.pt")
# Names, types, devices: without brackets, quotes or operators, which a call would need.
_NAME = re.compile(r"[\w.:/ -]*")
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|torchvision)\.\w+(\.\w+)?|_operator\.\w+|math\.\w+|torch\.sym_\w+|torch\._sym_\w+"
)
_NOT_ALLOWED = re.compile(r"torch\.ops\.aten\.(from_file|save)\b|_operator\.(attrgetter|methodcaller|call)\b|.*__")
# A size as printed by SymPy: Symbol('s41', positive=True, integer=True), FloorDiv(s0, 8), 2*s0 + 1 ...
_SIZE = re.compile(
    r"(?:\b(?:Symbol|Integer|Rational|Float|Mul|Add|Pow|Max|Min|Mod|PythonMod|FloorDiv|CeilDiv|IntTrueDiv|TruncToInt"
    r"|CleanDiv|ModularIndexing|Where|Eq|Ne|Le|Lt|Ge|Gt|And|Or|Not|Piecewise|ExprCondPair|positive|integer|nonnegative"
    r"|evaluate|True|False|oo|int_oo)\b|'[a-z]\d+'|\b[a-z]\d+\b|\b\d+(?:\.\d+)?\b|[-+*/%(),=<>&|~ ])*"
)
# A guard on sizes, evaluated before the model runs: (1 + L['x'].size()[3]) // 2 != 1
_GUARD = re.compile(
    r"(?:L\['\w+'\]|L\[\"\w+\"\]|\.size\(\)|\.dim\(\)|\.shape|\[\d+\]|\b\d+(?:\.\d+)?\b|\b(?:and|or|not|max|min)\b"
    r"|[-+*/%()<>=!, ])*"
)
# Only shown to people, never looked up or compiled.
_REMARKS = ("metadata", "stack_trace", "torch_version")
_TREES = ("in_spec", "out_spec")


def check_pt2(path: str, data: bytes) -> None:
    """Rejects a file that could run code of its own.

    Args:
        path: Name in errors.
        data: The file's content.

    Raises:
        ModelError: The file could run code, or has another format.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
        if any(_EARLIER.fullmatch(name) for name in names):
            raise _refused(path, "it was saved by torch before 2.9, which cannot be checked")
        reader = torch._C.PyTorchFileReader(io.BytesIO(data))
        records = set(reader.get_all_records())
    except (RuntimeError, zipfile.BadZipFile) as error:
        raise ModelError(path, f"is not a torch.export.save file: {str(error).splitlines()[0]}") from error
    # Torch may fall back to reading it as a plain archive: both ways must see the same content.
    if len(names) != len(set(names)) or {name.partition("/")[2] for name in names} != records:
        raise _refused(path, "its parts are ambiguous")
    for name in sorted(records):
        if not _RECORD.fullmatch(name):
            raise _refused(path, f"it contains {name}")
    for name in ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json"):
        for entry in _parsed(path, reader, name).get("config", {}).values():
            if entry.get("use_pickle") or not re.fullmatch(r"(weight|tensor)_\d+", str(entry.get("path_name"))):
                raise _refused(path, f"{name} names an object that is not a plain tensor")
    try:
        torch.load(io.BytesIO(reader.get_record("data/sample_inputs/model.pt")), weights_only=True, map_location="cpu")
    except Exception as error:
        raise _refused(path, "its sample inputs are not only tensors") from error
    for where, text in _texts(_parsed(path, reader, "models/model.json"), ""):
        _check_text(path, where, text)


def _parsed(path: str, reader: Any, name: str) -> dict[str, Any]:
    try:
        found = json.loads(reader.get_record(name))
    except (RuntimeError, ValueError, RecursionError) as error:
        raise ModelError(path, f"is not a torch.export.save file: {name} is missing or damaged") from error
    if not isinstance(found, dict):
        raise ModelError(path, f"is not a torch.export.save file: {name} is damaged")
    return found


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yields all strings in a JSON value, including keys, with their locations."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield "key", key
            if key not in _REMARKS:
                yield from _texts(part, key)
            elif key == "metadata" and isinstance(part, dict):
                yield from (("key", name) for name in part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, where)
    elif isinstance(value, str):
        yield where, value


def _check_text(path: str, where: str, text: str) -> None:
    if where == "target":
        fine = bool(_OPERATOR.fullmatch(text)) and not _NOT_ALLOWED.match(text)
    elif where in ("expr_str", "key"):
        fine = bool(_SIZE.fullmatch(text) or (where == "key" and _NAME.fullmatch(text)))
    elif where in _TREES:
        fine = _is_plain_tree(text)
    elif where == "guards_code":
        fine = bool(_GUARD.fullmatch(text))
    else:
        fine = bool(_NAME.fullmatch(text))
    if not fine:
        raise _refused(path, f"{where} is {text[:60]!r}")


def _is_plain_tree(text: str) -> bool:
    """Returns True if text is JSON whose strings are names, or JSON again."""
    try:
        parts = [part for _, part in _texts(json.loads(text), "")] if text else []
    except (ValueError, RecursionError):
        return False
    return all(_is_plain_tree(part) if part[:1] in ("[", "{", '"') else _NAME.fullmatch(part) for part in parts)


def _refused(path: str, what: str) -> ModelError:
    return ModelError(
        path,
        f"loading it could run code in it ({what}); export the model to .onnx, or, if you trust the file, pass "
        "trust_model=True (--trust-model)",
    )
