"""Segments on Ray: a Ray Data pipeline whose actors each have a model and decode for it.

The rows are those of a run on one machine: segments, and the batches in them, are the same, and which worker does a
segment makes no difference. An actor that dies is started anew by Ray, which gives it its segment again.
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

# Tasks of a pipeline: Ray keeps account of each.
MAX_BLOCKS = 4096

# How often a segment is begun again after its worker has died, and a worker after it has: enough for machines that go
# away, and an end for a model that takes its process down with it. (Ray's own default is for ever.)
MAX_RETRIES = 3
LOOPBACK = "127.0.0.1"
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
MAX_RESTARTS = 16

# What a worker may keep of decoded frames, where nothing is said: several may share a machine.
MEMORY_BUDGET = "1GiB"


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Where and with how many workers to run.

    Attributes:
        address: Of a cluster: ``"auto"``, ``"host:port"`` or ``"ray://host:port"``; None for a Ray on this machine, or
            the one that this process is connected to.
        min_workers, max_workers: Copies of the model. Between the two Ray adds and removes workers by what there is to
            do, and asks the cluster's autoscaler for machines. None: at least 1, and as many as there is room for.
        cpus_per_worker: CPUs of each, which it decodes with.
        gpus_per_worker: GPUs of each; None is 1 on a GPU.
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
                raise ValueError(f"{name} is at least 1, got {value}")
        if self.min_workers and self.max_workers and self.min_workers > self.max_workers:
            raise ValueError(f"min_workers {self.min_workers} is more than max_workers {self.max_workers}")


def ray_options(given: RayOptions | str | bool) -> RayOptions:
    """``RayOptions`` from an address, or True for a Ray on this machine."""
    if isinstance(given, RayOptions):
        return given
    return RayOptions(address=None if given is True else str(given))


def _ray() -> Any:
    # No figures about the use of Ray are sent anywhere.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its remarks would go to our stderr
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingBackend(
            "ray", f"cannot be loaded ({error}); it needs ray[data]: pip install framefeed[ray]"
        ) from error
    return ray


def start_local(ray: Any, **more: Any) -> None:
    """Starts a Ray on this machine whose processes all listen on 127.0.0.1 only.

    By itself Ray listens on all interfaces, and whoever reaches it runs code. Its one switch for that is meant for
    other systems: where there are no clusters, the machine's address is that of the loopback.

    Args:
        ray: The module.
        more: Arguments of ``ray.init``.

    Raises:
        RuntimeError: This Ray listens elsewhere nevertheless. It is shut down.
    """
    constants = sys.modules.get("ray._private.ray_constants")
    before, switch = os.environ.get(_CLUSTERS), getattr(constants, "ENABLE_RAY_CLUSTER", None)
    os.environ[_CLUSTERS] = "0"  # for the processes that are started
    if switch is not None:
        constants.ENABLE_RAY_CLUSTER = False  # type: ignore[union-attr]  # for this one, which has read it before
    try:
        # "local": by itself Ray would look for one that runs already, by a file that any user can write.
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
            f"this version listens on {found}, not on {LOOPBACK} only; start it yourself, and give its address"
        )


def _lives() -> dict[str, Any]:
    """How often Ray starts a worker again, and gives it what the dead one had.

    By itself Ray does both without end: a video that kills its worker would keep the run going for ever. This is how
    to say so up to Ray 2.63.
    """
    return {"max_restarts": MAX_RESTARTS, "max_task_retries": MAX_RETRIES}


class _Actor:
    """A worker, as Ray Data calls it: with segments, for what was found in them."""

    def __init__(self, model: Any, options: InferOptions) -> None:
        if options.device == "cpu":
            import torch

            torch.set_num_threads(options.num_threads or 1)
        try:
            self._worker: InferenceWorker | FramefeedError = InferenceWorker(model, options)
        except FramefeedError as error:  # told with the first segment: Ray would try to start it again and again
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
    """Does segments on Ray.

    Args:
        model: The model; a file has to be there on each machine.
        ray: Where.

    Attributes:
        stats: What all workers have done together.

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
        """Leaves Ray, where it was not there before."""
        if self._started:
            self._ray.shutdown()
            self._started = False

    def choose_device(self, device: str) -> str:
        """``"auto"`` is a GPU where the cluster has one. Each worker finds its own GPU as the first one."""
        if device == "auto":
            return "cuda" if self._ray.cluster_resources().get("GPU") else "cpu"
        return device

    def use(self, options: InferOptions) -> RayExecutor:
        """Sets what workers do."""
        budget = MEMORY_BUDGET if options.memory_budget is None else options.memory_budget
        threads = options.num_threads or (self._given.cpus_per_worker if options.device == "cpu" else None)
        self._options = replace(options, num_threads=threads, memory_budget=budget)
        return self

    def run(self, segments: Sequence[Segment], videos: Sequence[VideoRef], advance: Any) -> Iterator[Finished]:
        """Gives each segment when it is done."""
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
        """Without Ray's own progress and remarks; ours are shown instead."""
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
