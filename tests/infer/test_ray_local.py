"""A Ray that is started here listens on the loopback only: what is asked of it, without Ray."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import pytest

from framefeed import MissingBackend
from framefeed.infer.ray import LOOPBACK, RayExecutor, RayOptions

SWITCH = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


class FakeRay(types.ModuleType):
    def __init__(self, address: str) -> None:
        super().__init__("ray")
        self.__path__: list[str] = []
        self.address = address
        self.calls: list[tuple[str, Any]] = []
        self.util = types.SimpleNamespace(get_node_ip_address=lambda: self.address)

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        constants = sys.modules["ray._private.ray_constants"]
        self.calls.append(("init", options | {"env": os.environ.get(SWITCH), "switch": constants.ENABLE_RAY_CLUSTER}))

    def shutdown(self) -> None:
        self.calls.append(("shutdown", None))


def put(monkeypatch: pytest.MonkeyPatch, address: str = LOOPBACK) -> tuple[FakeRay, Any]:
    ray, constants = FakeRay(address), types.ModuleType("ray._private.ray_constants")
    constants.ENABLE_RAY_CLUSTER = True  # type: ignore[attr-defined]
    for name, module in (("ray", ray), ("ray.data", types.ModuleType("ray.data")), (constants.__name__, constants)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv(SWITCH, raising=False)
    return ray, constants


def test_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, constants = put(monkeypatch)
    executor = RayExecutor("model.onnx", RayOptions())
    ((name, options),) = ray.calls
    assert name == "init"
    assert (options["address"], options["_node_ip_address"]) == ("local", LOOPBACK)
    assert (options["env"], options["switch"], options["include_dashboard"]) == ("0", False, False)
    assert SWITCH not in os.environ and constants.ENABLE_RAY_CLUSTER is True
    executor.close()
    assert ray.calls[-1][0] == "shutdown"


def test_a_ray_that_listens_elsewhere_is_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, _ = put(monkeypatch, "192.0.2.2")
    with pytest.raises(MissingBackend, match=r"listens on 192\.0\.2\.2, not only on 127\.0\.0\.1"):
        RayExecutor("model.onnx", RayOptions())
    assert [name for name, _ in ray.calls] == ["init", "shutdown"]


def test_an_address_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, _ = put(monkeypatch)
    RayExecutor("model.onnx", RayOptions(address="auto"))
    ((_, options),) = ray.calls
    assert options["address"] == "auto" and options["env"] is None and options["switch"] is True
    assert "_node_ip_address" not in options
