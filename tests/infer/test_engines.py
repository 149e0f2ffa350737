"""Every kind of model gives the same, says what it takes, and is refused with what is possible."""

from __future__ import annotations

import os
import sys
import types
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from framefeed import MissingBackend, ModelError
from framefeed.infer.detection.detect import Detector, input_size
from framefeed.infer.detection.fit import fit_frames
from framefeed.infer.engines import choose_device, model_identity, open_engine
from framefeed.infer.engines import onnx as onnx_module
from framefeed.infer.engines.base import named_outputs, parse_names
from framefeed.testing.shape_detector import CLASSES, ShapeDetector, export
from infer.truth import SIZE

CPU = torch.device("cpu")


def frames(count: int = 3) -> Tensor:
    return torch.rand(count, 3, *SIZE, generator=torch.Generator().manual_seed(count))


def write_onnx(path: Path, inputs: list[tuple[str, int, list[Any]]], **metadata: str) -> Path:
    """A model that gives its first input back."""
    helper = onnx.helper
    values = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
    out = helper.make_tensor_value_info("out", inputs[0][1], inputs[0][2])
    graph = helper.make_graph([helper.make_node("Identity", [inputs[0][0]], ["out"])], "g", values, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    for key, value in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.save(model, path)
    return path


class Unmakeable:
    def __init__(self) -> None:
        raise FileNotFoundError("no weights")


class Torchvisionlike:
    """Returns lists of dicts, as torchvision's detectors do."""

    image_size = SIZE
    names = CLASSES
    concurrent = True

    def __call__(self, batch: Tensor) -> list[dict[str, Tensor]]:
        return [
            {"boxes": torch.ones(row, 4), "scores": torch.full((row,), 0.5), "labels": torch.full((row,), row)}
            for row in range(len(batch))
        ]


def double(batch: Tensor) -> Tensor:
    return batch * 2


# --- what they give -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["onnx", "pt2", "ts", "fixed"])
def test_all_formats_give_the_same(models: Mapping[str, Path], kind: str) -> None:
    engine = open_engine(models[kind], CPU)
    batch = frames(4)
    ((_, found),) = engine.run(batch)
    torch.testing.assert_close(found, ShapeDetector(*SIZE)(batch), rtol=1e-4, atol=1e-3)


def test_programs_move_to_other_devices(models: Mapping[str, Path]) -> None:
    """As to a GPU: weights, buffers and what the program makes itself."""
    ((_, found),) = open_engine(models["pt2"], torch.device("meta")).run(frames().to("meta"))
    assert (found.device.type, found.shape) == ("meta", (3, 7, 256))


def test_signatures(models: Mapping[str, Path]) -> None:
    found = {kind: open_engine(path, CPU).signature for kind, path in models.items()}
    assert (found["onnx"].batch, found["onnx"].height, found["onnx"].width) == (None, *SIZE)
    assert (found["pt2"].batch, found["pt2"].height, found["pt2"].width) == (None, *SIZE)
    assert (found["fixed"].batch, found["fixed"].dtype) == (4, torch.float32)
    assert found["half"].dtype == torch.float16
    assert (found["ts"].height, found["ts"].dtype) == (None, torch.float32)  # TorchScript does not say


def test_a_module_and_names_of_functions() -> None:
    detector = ShapeDetector(*SIZE)
    ((_, found),) = open_engine(detector, CPU).run(frames())
    torch.testing.assert_close(found, detector(frames()))
    engine = open_engine("infer.test_engines:double", CPU)
    assert engine.run(torch.ones(2, 3, 4, 4))[0][1].sum() == 2 * 2 * 3 * 16
    liked = open_engine("infer.test_engines:Torchvisionlike", CPU)
    assert (liked.signature.height, liked.signature.names) == (SIZE[0], CLASSES)
    assert liked.concurrent and not engine.concurrent  # somebody's function is called by one thread at a time
    outputs = dict(liked.run(frames()))
    assert outputs["boxes"].shape == (3, 2, 4)
    assert outputs["scores"].tolist() == [[-1.0, -1.0], [0.5, -1.0], [0.5, 0.5]]
    assert open_engine(ShapeDetector(*SIZE).half(), CPU).signature.dtype == torch.float16


def test_modules_and_classes_that_raise_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, code, reason in (
        ("odd_syntax", "def f(:", "SyntaxError: invalid syntax (odd_syntax.py, line 1)"),
        ("odd_error", "1 / 0", "ZeroDivisionError: division by zero"),
        ("odd_exit", "raise SystemExit", "SystemExit"),
        ("odd_import", "import no_such_module", "No module named 'no_such_module'"),
    ):
        (tmp_path / f"{name}.py").write_text(code)
        with pytest.raises(ModelError) as caught:
            open_engine(f"{name}:f", CPU)
        assert str(caught.value) == f"{name}:f: cannot import module {name} ({reason})"
    with pytest.raises(
        ModelError, match=r"Unmakeable: cannot create an object of this class \(FileNotFoundError: no w"
    ):
        open_engine("infer.test_engines:Unmakeable", CPU)


def test_onnx_says_class_names(tmp_path: Path) -> None:
    kind = onnx.TensorProto.FLOAT
    path = write_onnx(tmp_path / "m.onnx", [("x", kind, ["n", 3, "h", "w"])], names="{0: 'cat', 1: 'dog'}")
    signature = open_engine(path, CPU).signature
    assert (signature.names, signature.height, signature.batch) == (("cat", "dog"), None, None)
    assert parse_names("['a', 'b']") == ("a", "b")
    for wrong in ("", "{0: 'a', 2: 'c'}", "__import__('os')", "[1, 2]"):
        assert parse_names(wrong) == ()


def test_torchscript_says_what_its_exporter_wrote(tmp_path: Path, models: Mapping[str, Path]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.load(models["ts"])  # type: ignore[no-untyped-call]
        extra = {"config.txt": '{"imgsz": [128, 128], "names": {"0": "a", "1": "b", "2": "c"}}'}
        torch.jit.save(module, str(tmp_path / "m.torchscript"), _extra_files=extra)
    signature = open_engine(tmp_path / "m.torchscript", CPU).signature
    assert (signature.height, signature.width, signature.names) == (128, 128, ("a", "b", "c"))


# --- what is refused ----------------------------------------------------------------------------------------------


def test_signatures_that_do_not_fit(tmp_path: Path) -> None:
    kinds = onnx.TensorProto
    for name, inputs, found in (
        ("gray", [("x", kinds.FLOAT, [1, 1, 8, 8])], r"x \[1, 1, 8, 8\] tensor\(float\)"),
        ("bytes", [("x", kinds.UINT8, [1, 3, 8, 8])], "uint8"),
        ("flat", [("x", kinds.FLOAT, [1, 3, 8])], r"\[1, 3, 8\]"),
        ("two", [("x", kinds.FLOAT, [1, 3, 8, 8]), ("y", kinds.FLOAT, [1])], "one input"),
    ):
        path = write_onnx(tmp_path / f"{name}.onnx", inputs)
        with pytest.raises(ModelError, match=f"{name}.onnx: unsupported input .*{found}"):
            open_engine(path, CPU)


def test_pt2_that_takes_something_else(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a + b

    torch.export.save(torch.export.export(Two(), (torch.ones(1), torch.ones(1))), tmp_path / "two.pt2")
    with pytest.raises(ModelError, match=r"two\.pt2: unsupported input \(1\) torch\.float32, \(1\)"):
        open_engine(tmp_path / "two.pt2", CPU)


def test_image_size(models: Mapping[str, Path]) -> None:
    fixed, free = open_engine(models["onnx"], CPU), open_engine(models["ts"], CPU)
    assert input_size(fixed, None) == input_size(fixed, SIZE) == SIZE
    assert input_size(free, (64, 32)) == (64, 32)
    with pytest.raises(ModelError, match="expects frames of 128x128, not 64x32"):
        input_size(fixed, (32, 64))
    with pytest.raises(ModelError, match="--image-size"):
        input_size(free, None)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    for name in ("m.onnx", "m.pt2", "m.ts", "m.txt"):
        with pytest.raises(ModelError, match=f"{name}: no such file; supported models: .onnx"):
            open_engine(tmp_path / name, CPU)
        (tmp_path / name).write_bytes(b"not a model")
        with pytest.raises(ModelError, match=name):
            open_engine(tmp_path / name, CPU)
    with pytest.raises(ModelError, match="cannot import"):
        open_engine("no_such_module:f", CPU)
    with pytest.raises(ModelError, match="has no nothing"):
        open_engine("infer.test_engines:nothing", CPU)
    with pytest.raises(ModelError, match="a file or a callable"):
        open_engine(17, CPU)


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_pickled_files_are_not_loaded_unasked(tmp_path: Path) -> None:
    torch.save(Evil(tmp_path / "ran"), tmp_path / "evil.pt")
    with pytest.raises(ModelError, match=r"evil\.pt: is a pickle.*--trust-model"):
        open_engine(tmp_path / "evil.pt", CPU)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ModelError, match="not a module"):
        open_engine(tmp_path / "evil.pt", CPU, trust_model=True)
    assert (tmp_path / "ran").exists()  # so it would have been noticed above
    detector = ShapeDetector(*SIZE)
    torch.save(detector, tmp_path / "module.pt")
    ((_, found),) = open_engine(tmp_path / "module.pt", CPU, trust_model=True).run(frames())
    torch.testing.assert_close(found, detector(frames()))


def test_onnx_without_a_gpu(models: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingBackend, match="onnxruntime-gpu"):
        onnx_module.OnnxEngine(str(models["onnx"]), torch.device("cuda", 0))
    monkeypatch.setattr("framefeed.infer.engines.choose.resolve_device", lambda device: torch.device("cuda", 0))
    assert choose_device("auto", models["onnx"]) == CPU
    assert choose_device("auto", models["pt2"]).type == "cuda"


def test_what_a_model_is_known_by(models: Mapping[str, Path], tmp_path: Path) -> None:
    first = model_identity(models["onnx"])
    copy = tmp_path / models["onnx"].name
    copy.write_bytes(models["onnx"].read_bytes())
    assert model_identity(copy) == first
    copy.with_name(copy.name + ".data").write_bytes(b"weights")
    assert model_identity(copy) != first
    assert model_identity("infer.test_engines:double") == {"model": "infer.test_engines:double"}
    with pytest.raises(ModelError, match="cannot be read"):
        model_identity(tmp_path / "missing.onnx")


def test_what_callables_return() -> None:
    assert [name for name, _ in named_outputs({"boxes": torch.ones(1)}, "m")] == ["boxes"]
    assert len(named_outputs((torch.ones(1), [torch.ones(1)]), "m")) == 1  # YOLO's feature maps
    for wrong in (None, [], [1, 2], {"a": 1}):
        with pytest.raises(ModelError, match="it returned"):
            named_outputs(wrong, "m")
    with pytest.raises(ModelError, match="without 'labels'"):
        named_outputs([{"boxes": torch.ones(1, 4), "scores": torch.ones(1)}], "m")

    def fails(batch: Tensor) -> Tensor:
        raise RuntimeError("first line\nsizes do not match")

    with pytest.raises(ModelError, match="sizes do not match"):
        open_engine(fails, CPU).run(frames())


# --- batches ------------------------------------------------------------------------------------------------------


def detector(model: Any, **more: Any) -> Detector:
    return Detector(open_engine(model, CPU), SIZE, CPU, batch_size=6, **more)


def test_no_more_frames_at_a_time_than_the_model_takes() -> None:
    seen: list[int] = []

    def model(batch: Tensor) -> Tensor:
        seen.append(len(batch))
        return torch.zeros(len(batch), 7, 84)

    engine: Any = open_engine(model, CPU)
    engine.signature = replace(engine.signature, max_batch=4)
    limited = Detector(engine, SIZE, CPU, batch_size=6)
    launched = limited.launch(torch.zeros(6, 3, *SIZE, dtype=torch.uint8), fit_frames(SIZE, SIZE))
    assert seen == [4, 2]
    assert launched.outputs[0][1].shape == (6, 7, 84)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 6])
def test_fixed_batches_are_filled_up_and_cut(models: Mapping[str, Path], count: int) -> None:
    fit = fit_frames(SIZE, SIZE)
    plain, fixed = detector(models["onnx"]), detector(models["fixed"])
    for turn in range(2):  # what the batch before has left makes no difference
        pictures = torch.full((count, 3, *SIZE), 90, dtype=torch.uint8)
        for row in range(count):  # in each frame a rectangle elsewhere
            top, left = 8 * row + 4, 40 * turn + 6
            pictures[row, :, top : top + 40, left : left + 50] = torch.tensor([[[255]], [[0]], [[0]]]).byte()
        one, other = (each.collect(each.launch(pictures, fit)) for each in (plain, fixed))
        assert one.frames.tolist() == other.frames.tolist() == list(range(count))
        np.testing.assert_allclose(one.boxes, other.boxes, atol=0.01)
        np.testing.assert_allclose(one.boxes[:, 1], 8 * np.arange(count) + 4, atol=0.5)


def test_input_has_values_from_0_to_1_and_grey_around() -> None:
    seen: list[Tensor] = []

    def model(batch: Tensor) -> Tensor:
        seen.append(batch.clone())
        return torch.zeros(len(batch), 7, 84)

    fit = fit_frames((10, 20), SIZE)
    pictures = torch.arange(256, dtype=torch.uint8)[torch.randint(0, 256, (2, 3, *fit.scaled))]
    found = detector(model)
    found.collect(found.launch(pictures, fit))
    (batch,) = seen
    middle = batch[:, :, fit.top : fit.top + fit.scaled[0]]
    expected = (pictures.double() / 255).float()
    assert torch.equal(middle, expected)
    assert torch.equal(batch[:, :, : fit.top], torch.full_like(batch[:, :, : fit.top], 114 / 255))


@pytest.mark.parametrize(
    ("value", "reason"),
    [(7.5, "scores up to 7.5"), (float("nan"), "NaN or infinite"), (float("inf"), "NaN or infinite")],
)
def test_scores_that_are_none(value: float, reason: str) -> None:
    def model(batch: Tensor) -> Tensor:
        found = torch.ones(len(batch), 7, 84) * 0.1
        found[0, 5, 3] = value
        return found

    broken = detector(model)
    with pytest.raises(ModelError, match=reason):
        broken.collect(broken.launch(torch.zeros(2, 3, *SIZE, dtype=torch.uint8), fit_frames(SIZE, SIZE)))


def test_outputs_that_are_not_for_each_frame() -> None:
    broken = detector(lambda batch: torch.ones(1, 7, 84))
    with pytest.raises(ModelError, match=r"\(1, 7, 84\) does not have one row for each of 2 frames"):
        broken.launch(torch.zeros(2, 3, *SIZE, dtype=torch.uint8), fit_frames(SIZE, SIZE))


# --- TensorRT, which is not here ----------------------------------------------------------------------------------


class FakeContext:
    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self._shape: tuple[int, ...] = ()
        self.addresses: dict[str, int] = {}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> None:
        self._shape = shape

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (self._shape[0], 7, 84)

    def set_tensor_address(self, name: str, address: int) -> None:
        self.addresses[name] = address

    def execute_async_v3(self, stream: int) -> bool:
        return self._engine.works and set(self.addresses) == {"images", "output0"} and stream == 7


class FakeEngine:
    num_io_tensors = 2
    works = True

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self.context = FakeContext(self)

    def create_execution_context(self) -> FakeContext:
        return self.context

    def get_tensor_name(self, place: int) -> str:
        return ("images", "output0")[place]

    def get_tensor_mode(self, name: str) -> str:
        return "in" if name == "images" else "out"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (self._batch, 3, 64, 64)

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, ...]]:
        return [(1, 3, 64, 64), (8, 3, 64, 64), (16, 3, 64, 64)]

    def get_tensor_dtype(self, name: str) -> Any:
        return types.SimpleNamespace(name="HALF" if name == "images" else "FLOAT")


def fake_tensorrt(engine: FakeEngine | None, seen: list[bytes]) -> Any:
    def load(data: bytes) -> FakeEngine | None:
        seen.append(data)
        return engine

    runtime = types.SimpleNamespace(deserialize_cuda_engine=load)
    logger = type("Logger", (), {"ERROR": 1, "__init__": lambda self, level: None})
    found = types.ModuleType("tensorrt")
    found.__dict__.update(
        Runtime=lambda log: runtime, Logger=logger, TensorIOMode=types.SimpleNamespace(INPUT="in"), __version__="10.0"
    )
    return found


def test_tensorrt_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from framefeed.infer.engines import tensorrt as module

    path = tmp_path / "m.engine"
    path.write_bytes((9).to_bytes(4, "little") + b'{"a": 1}}'[:9] + b"PLAN")
    with pytest.raises(MissingBackend, match="need a GPU"):
        open_engine(path, CPU)
    cuda = torch.device("cuda", 0)
    with pytest.raises(MissingBackend, match="pip install tensorrt"):
        open_engine(path, cuda)
    seen: list[bytes] = []
    engine = FakeEngine(-1)
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(engine, seen))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=7))
    made = torch.empty
    monkeypatch.setattr(torch, "empty", lambda shape, dtype, device: made(shape, dtype=dtype))
    loaded = module.TensorRTEngine(str(path), cuda)
    assert seen == [b"PLAN"]  # without the description in front
    signature = loaded.signature
    assert (signature.batch, signature.max_batch, signature.height) == (None, 16, 64)
    assert signature.dtype == torch.float16
    batch = torch.zeros(5, 3, 64, 64)
    ((name, found),) = loaded.run(batch)
    assert (name, found.shape, found.dtype) == ("output0", (5, 7, 84), torch.float32)
    assert engine.context.addresses == {"images": batch.data_ptr(), "output0": found.data_ptr()}
    engine.works = False
    with pytest.raises(ModelError, match="TensorRT failed"):
        loaded.run(batch)
    assert module.TensorRTEngine(str(path), cuda) is not None
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(None, seen))
    with pytest.raises(ModelError, match=r"TensorRT 10\.0 cannot load it"):
        open_engine(path, cuda)


def test_exporting_what_is_no_format(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.onnx, \.pt2"):
        export(ShapeDetector(32, 32), tmp_path / "m.h5")
