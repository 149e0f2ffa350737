"""Files of torch.export's are loaded; files that would run code of their own while they are loaded are not."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from framefeed import ModelError
from framefeed.infer.engines.pt2_check import check_pt2

MODEL = "models/model.json"
SAMPLES = "data/sample_inputs/model.pt"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"


class Mixed(nn.Module):
    """Attention, interpolation, constants, and outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 2, 1)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_buffer("scale", torch.arange(4.0))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        wide = nn.functional.interpolate(nn.functional.silu(self.conv(x)), scale_factor=2.0)
        flat = wide.flatten(2).transpose(1, 2)[:, :16]
        found, _ = self.attend(flat, flat, flat)
        return {"boxes": found[..., :4] * self.scale, "scores": found.mean(-1) * torch.tensor([2.0])}


@pytest.mark.parametrize("part", ["serialized_exported_program.json", "m/data/weights/model.pt"])
def test_files_of_earlier_releases(part: str) -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(part, b"")
    with pytest.raises(ModelError, match=r"saved by torch before 2\.9.* export the model to \.onnx"):
        check_pt2("m.pt2", written.getvalue())


@pytest.mark.parametrize("dynamic", [False, True])
def test_ordinary_programs_are_fine(dynamic: bool) -> None:
    auto = torch.export.Dim.AUTO
    shapes = {"x": {0: auto, 2: auto, 3: auto}} if dynamic else None
    program = torch.export.export(Mixed().eval(), (torch.rand(2, 3, 32, 48),), dynamic_shapes=shapes)
    written = io.BytesIO()
    torch.export.save(program, written)
    check_pt2("m.pt2", written.getvalue())


def changed(data: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """The archive with other records."""
    reader = torch._C.PyTorchFileReader(io.BytesIO(data))
    own = (".data/serialization_id", "byteorder")  # which the writer adds
    records = {name: bytes(reader.get_record(name)) for name in reader.get_all_records() if name not in own}
    change(records)
    out = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(out)
    for name, record in records.items():
        writer.write_record(name, record, len(record))
    writer.write_end_of_file()
    return out.getvalue()


def edit(name: str, change: Callable[[Any], None]) -> Callable[[dict[str, bytes]], None]:
    def apply(records: dict[str, bytes]) -> None:
        content = json.loads(records[name])
        change(content)
        records[name] = json.dumps(content).encode()

    return apply


def _graph(content: Any) -> Any:
    return content["graph_module"]["graph"]


def _evil_samples(records: dict[str, bytes]) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return print, ("unpickled",)

    written = io.BytesIO()
    torch.save((Evil(),), written)
    records[SAMPLES] = written.getvalue()


def _set(target: Any, key: str, value: Any) -> None:
    target[key] = value


def _first_size(content: Any) -> Any:
    for tensor in _graph(content)["tensor_values"].values():
        for size in tensor["sizes"]:
            if "as_expr" in size:
                return size["as_expr"]
    raise AssertionError


CODE = "__import__('os').mkdir('ran')"

EVIL: dict[str, Callable[[dict[str, bytes]], None]] = {
    "sample inputs": _evil_samples,
    "operator": edit(MODEL, lambda all_: _set(_graph(all_)["nodes"][0], "target", "torch.os.system")),
    "operator's module": edit(MODEL, lambda all_: _set(_graph(all_)["nodes"][0], "target", "_operator.methodcaller")),
    "writes files": edit(MODEL, lambda all_: _set(_graph(all_)["nodes"][0], "target", "torch.ops.aten.save.default")),
    "size": edit(MODEL, lambda all_: _set(_first_size(all_), "expr_str", CODE)),
    "guard": edit(MODEL, lambda all_: all_["guards_code"].append(CODE)),
    "name of a node": edit(MODEL, lambda all_: _set(_graph(all_)["inputs"][-1]["as_tensor"], "name", f"frames={CODE}")),
    "pickled weight": edit(WEIGHTS, lambda all_: _set(next(iter(all_["config"].values())), "use_pickle", True)),
    "opaque constant": edit(
        CONSTANTS, lambda all_: _set(all_["config"], "c", {"path_name": "opaque_obj_0", "use_pickle": True})
    ),
    "opaque record": lambda records: _set(records, "data/constants/opaque_obj_0", pickle.dumps(1)),
    "compiled code": lambda records: _set(records, "data/aotinductor/model/model.so", b"\x7fELF"),
    "older format": lambda records: _set(records, "version", b"7.1"),
    "legacy weights": lambda records: _set(records, "data/weights/model.pt", b""),
    "output's tree": edit(
        MODEL,
        lambda all_: _set(all_["graph_module"]["module_call_graph"][0]["signature"], "out_spec", json.dumps([1, CODE])),
    ),
}


def test_the_file_itself_survives_being_rewritten(models: Mapping[str, Path]) -> None:
    """Or else the cases below would prove nothing."""
    data = changed(models["pt2"].read_bytes(), lambda records: None)
    check_pt2("m.pt2", data)
    torch.export.load(io.BytesIO(data))


@pytest.mark.parametrize("what", sorted(EVIL))
def test_code_of_their_own_is_refused(models: Mapping[str, Path], what: str) -> None:
    data = changed(models["pt2"].read_bytes(), EVIL[what])
    with pytest.raises(ModelError, match=r"m\.pt2: loading it could run code in it .*--trust-model"):
        check_pt2("m.pt2", data)


def test_torch_itself_would_have_run_it(
    models: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A size is one of the ways in; where this fails, torch has become more careful, and so may the check."""
    monkeypatch.chdir(tmp_path)
    data = changed(models["pt2"].read_bytes(), EVIL["size"])
    with pytest.raises(Exception):  # noqa: B017
        torch.export.load(io.BytesIO(data))
    assert (tmp_path / "ran").exists()


def test_what_is_no_archive() -> None:
    for data in (b"", b"PK\x03\x04", b"not a model" * 100):
        with pytest.raises(ModelError, match=r"is not a torch\.export\.save file"):
            check_pt2("m.pt2", data)
