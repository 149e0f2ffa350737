"""Runs segments on Ray: a Ray Data pipeline whose actors each have a model and decode for it.

Rows equal those of a run on one machine: segments and their batches are the same, and do not depend on the worker. Ray
restarts an actor that dies, and gives it its segment again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from framefeed.errors import FramefeedError, MissingBackend, ModelError
from framefeed.infer.engines.call import is_callable_name
from framefeed.infer.engines.choose import model_name
from framefeed.infer.execution.segments import Segment
from framefeed.infer.execution.work import Finished, VideoRef, WorkerStats
from framefeed.infer.execution.worker import InferenceWorker
from framefeed.infer.options import InferOptions

__all__ = ["RayExecutor", "RayOptions", "ray_options"]

# Tasks of a pipeline: Ray tracks each of them.
MAX_BLOCKS = 4096

# Retries of a segment whose worker died, and restarts of a worker: enough for machines that go away, and an end for a
# model that crashes its process. (Ray's own default is unlimited.)
MAX_RETRIES = 3
LOOPBACK = "127.0.0.1"
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
MAX_RESTARTS = 16

# Default budget of a worker for decoded frames: several may share a machine.
MEMORY_BUDGET = "1GiB"


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Address and workers of a run on Ray.

    Attributes:
        address: Cluster address: ``"auto"``, ``"host:port"`` or ``"ray://host:port"``; None for Ray on this machine, or
            the cluster that this process is connected to.
        min_workers, max_workers: Copies of the model. Ray adds and removes workers in between by load, and asks the
            cluster's autoscaler for machines. None: at least 1, and as many as fit.
        cpus_per_worker: CPUs of each worker, used for decoding.
        gpus_per_worker: GPUs of each worker; None is 1 if the device is a GPU.
    """

    address: str | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    cpus_per_worker: int = 2
    gpus_per_worker: float | None = None

    def __post_init__(self) -> None:
        for name in ("min_workers", "max_workers", "cpus_per_worker"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.min_workers and self.max_workers and self.min_workers > self.max_workers:
            raise ValueError(f"min_workers must not exceed max_workers, got {self.min_workers} and {self.max_workers}")


def ray_options(given: RayOptions | str | bool) -> RayOptions:
    """Converts an address, or True for Ray on this machine, to ``RayOptions``."""
    if isinstance(given, RayOptions):
        return given
    return RayOptions(address=None if given is True else str(given))


def _ray() -> Any:
    # Disables Ray's usage statistics.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its messages would go to our stderr
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingBackend(
            "ray", f"cannot be loaded ({error}); it needs ray[data]: pip install framefeed[ray]"
        ) from error
    return ray


def start_local(ray: Any, **more: Any) -> None:
    """Starts Ray on this machine, with all processes listening on 127.0.0.1 only.

    By default Ray listens on all interfaces, and anyone who can connect can run code. Its only switch for that is meant
    for other systems: where clusters are disabled, the machine's address is the loopback address.

    Args:
        ray: The module.
        more: Arguments of ``ray.init``.

    Raises:
        RuntimeError: This Ray version listens elsewhere nevertheless. It is shut down.
    """
    constants = sys.modules.get("ray._private.ray_constants")
    before, switch = os.environ.get(_CLUSTERS), getattr(constants, "ENABLE_RAY_CLUSTER", None)
    os.environ[_CLUSTERS] = "0"  # for the started processes
    if switch is not None:
        constants.ENABLE_RAY_CLUSTER = False  # type: ignore[union-attr]  # for this process, which read it at import
    try:
        # "local": otherwise Ray looks for a running instance, in a file that any user can write.
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address=LOOPBACK,
            **more,
        )
    finally:
        if before is None:
            del os.environ[_CLUSTERS]
        else:
            os.environ[_CLUSTERS] = before
        if switch is not None:
            constants.ENABLE_RAY_CLUSTER = switch  # type: ignore[union-attr]
    found = ray.util.get_node_ip_address()
    if found != LOOPBACK:
        ray.shutdown()
        raise RuntimeError(
            f"this version listens on {found}, not only on {LOOPBACK}; start it yourself, and pass its address"
        )


def _lives() -> dict[str, Any]:
    """Returns Ray options that limit restarts of workers and retries of their segments.

    By default Ray does both without limit: a video that kills its worker would keep the run going forever. These are
    the names up to Ray 2.63.
    """
    return {"max_restarts": MAX_RESTARTS, "max_task_retries": MAX_RETRIES}


class _Actor:
    """Worker as called by Ray Data: takes segments, returns detections."""

    def __init__(self, model: Any, options: InferOptions) -> None:
        if options.device == "cpu":
            import torch

            torch.set_num_threads(options.num_threads or 1)
        try:
            self._worker: InferenceWorker | FramefeedError = InferenceWorker(model, options)
        except FramefeedError as error:  # reported with the first segment: Ray would restart the actor again and again
            self._worker = error

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        if isinstance(self._worker, FramefeedError):
            return {"result": [pickle.dumps(self._worker)] * len(batch["work"])}
        results = []
        for number, work in zip(batch["number"], batch["work"], strict=True):
            segment, videos = pickle.loads(work)
            before = replace(self._worker.stats)
            try:
                (finished,) = self._worker.run([segment], videos)
                finished.segment = int(number)
                results.append(pickle.dumps((finished, _less(self._worker.stats, before))))
            except FramefeedError as error:
                results.append(pickle.dumps(error))
        return {"result": results}


def _less(now: WorkerStats, before: WorkerStats) -> WorkerStats:
    return WorkerStats(*(getattr(now, each.name) - getattr(before, each.name) for each in fields(WorkerStats)))


class RayExecutor:
    """Runs segments on Ray.

    Args:
        model: The model; a file must exist on each machine.
        ray: Address and workers.

    Attributes:
        stats: Counters of all workers together.

    Raises:
        MissingBackend: Ray is not installed, or cannot be reached.
    """

    def __init__(self, model: Any, ray: RayOptions) -> None:
        self._ray = _ray()
        self._given = ray
        # Workers have another working directory.
        is_file = isinstance(model, str | os.PathLike) and not is_callable_name(os.fsdecode(model))
        self._model = os.path.abspath(os.fsdecode(model)) if is_file else model
        self._options: InferOptions | None = None
        self.stats = WorkerStats()
        self._started = False
        if not self._ray.is_initialized():
            try:
                if ray.address is None:
                    start_local(self._ray)
                else:
                    self._ray.init(address=ray.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError) as error:
                where = "cannot be started here" if ray.address is None else f"cannot be reached at {ray.address}"
                raise MissingBackend("ray", f"{where}: {error}") from error
            self._started = True

    def close(self) -> None:
        """Disconnects from Ray, if this object connected."""
        if self._started:
            self._ray.shutdown()
            self._started = False

    def choose_device(self, device: str) -> str:
        """Resolves ``"auto"`` to a GPU if the cluster has one. Each worker sees its own GPU as the first one."""
        if device == "auto":
            return "cuda" if self._ray.cluster_resources().get("GPU") else "cpu"
        return device

    def use(self, options: InferOptions) -> RayExecutor:
        """Sets the options of the workers."""
        budget = MEMORY_BUDGET if options.memory_budget is None else options.memory_budget
        threads = options.num_threads or (self._given.cpus_per_worker if options.device == "cpu" else None)
        self._options = replace(options, num_threads=threads, memory_budget=budget)
        return self

    def run(self, segments: Sequence[Segment], videos: Sequence[VideoRef], advance: Any) -> Iterator[Finished]:
        """Yields each segment when it is finished."""
        if not segments:
            return
        known = {video.number: video for video in videos}
        items = [
            {"number": number, "work": pickle.dumps((segment, [known[piece.video] for piece in segment.pieces]))}
            for number, segment in enumerate(segments)
        ]
        with self._quietly():
            for result in self._results(items):
                finished, stats = result
                for name, value in asdict(stats).items():
                    setattr(self.stats, name, getattr(self.stats, name) + value)
                for piece in segments[finished.segment].pieces:
                    advance(piece.video, piece.count)
                yield finished

    def _results(self, items: Sequence[dict[str, Any]]) -> Iterator[tuple[Finished, WorkerStats]]:
        given, options = self._given, self._options
        assert options is not None
        data = self._ray.data
        pool = data.ActorPoolStrategy(min_size=given.min_workers or 1, max_size=given.max_workers)
        gpus = given.gpus_per_worker if given.gpus_per_worker is not None else float(options.device != "cpu")
        found = data.from_items(list(items), override_num_blocks=min(len(items), MAX_BLOCKS)).map_batches(
            _Actor,
            fn_constructor_args=(self._model, options),
            batch_size=1,
            compute=pool,
            num_cpus=given.cpus_per_worker,
            num_gpus=gpus or None,
            ray_remote_args_fn=_lives,
        )
        try:
            for row in found.iter_rows():
                result = pickle.loads(row["result"])
                if isinstance(result, FramefeedError):
                    raise result
                yield result
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            raise ModelError(
                model_name(self._model), f"its workers on Ray failed: {lines[-1] if lines else type(error).__name__}"
            ) from error

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """Hides Ray's own progress and messages; ours are shown instead."""
        context = self._ray.data.DataContext.get_current()
        before = context.enable_progress_bars
        logger = logging.getLogger("ray.data")
        level = logger.level
        context.enable_progress_bars = False
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            context.enable_progress_bars = before
            logger.setLevel(level)
