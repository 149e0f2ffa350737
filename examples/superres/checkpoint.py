"""Everything that a training run needs to go on as if it had never been interrupted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn

from framefeed import StateError, VideoLoader
from framefeed._util.atomic_write import atomic_file

PARTS = {"model", "optimizer", "scaler", "loader", "random", "progress"}


def seed_all(seed: int) -> None:
    """Seeds all generators whose states are saved."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def save(
    path: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    loader: VideoLoader,
    device: torch.device,
    progress: dict[str, Any],
) -> None:
    """Writes a checkpoint; the file has the old one or the new one at any time. Called by all ranks."""
    own = _random_state(device)
    ranks: list[Any] = [own]
    if distributed.is_initialized():
        ranks = [None] * distributed.get_world_size()
        distributed.all_gather_object(ranks, own)
        if distributed.get_rank():
            return
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
        "loader": loader.state_dict(),  # which batch of which epoch comes next; the same for all ranks
        "random": ranks,
        "progress": progress,
    }
    with atomic_file(path) as file:
        torch.save(state, file)


def load(
    path: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    loader: VideoLoader,
    device: torch.device,
) -> dict[str, Any]:
    """Puts everything back to where it was saved; returns the progress.

    Raises:
        StateError: There is no checkpoint, or it belongs to another run.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise StateError(path, "there is no checkpoint to go on from; leave out --resume") from None
    except Exception as error:  # there is nothing that torch does not raise for a file that is not one of its own
        raise StateError(path, f"is no checkpoint ({type(error).__name__}); leave out --resume to begin anew") from None
    if not isinstance(state, dict) or not state.keys() >= PARTS:
        raise StateError(path, "is no checkpoint of this example; leave out --resume to begin anew")
    loader.load_state_dict(state["loader"])
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    if rank < len(state["random"]):  # more ranks than before, between epochs: the new ones begin with their own seed
        _set_random_state(state["random"][rank], device)
    try:
        model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise StateError(path, f"has another network: {error}") from None
    optimizer.load_state_dict(state["optimizer"])
    scaler.load_state_dict(state["scaler"])
    progress: dict[str, Any] = state["progress"]
    return progress


def _random_state(device: torch.device) -> dict[str, Any]:
    kind, words, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (kind, np.asarray(words).tolist(), *rest),  # plain values can be loaded with weights_only=True
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def _set_random_state(state: dict[str, Any], device: torch.device) -> None:
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, words, *rest = state["numpy"]
    np.random.set_state((kind, np.array(words, np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)
