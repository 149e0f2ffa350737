"""``VideoClipSampler``: batches of several clips, streamed in order or sampled at random."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.errors import StateError
from framefeed.plan.randomness import keys, whole_number

__all__ = ["VideoClipSampler"]

_CLIPS, _SAMPLES = 6, 7  # purposes of random keys; lower numbers belong to the orders

_POSSIBLE = ("stream", "random")

# Fields that must match when a state is loaded, and their descriptions in errors.
_SAME = {
    "group_num": "group_num",
    "frame_read_type": "frame_read_type",
    "shuffle": "shuffle",
    "seed": "seed",
    "drop_uneven": "drop_uneven",
    "dataset": "clips or clip lengths",
}


class VideoClipSampler(Sampler[list[int]]):
    """Batch sampler with one sample of each of several clips; pass it as ``batch_sampler=``.

    With ``"stream"``, the clips of a batch stay together and are read from their first frame to their last; then the
    next clips follow. A batch is smaller where some of its clips have ended. With ``"random"``, each batch has random
    samples of all clips. Each sample occurs once an epoch.

    Batches do not depend on the number of ranks, and ranks differ by at most one batch. For streams, each rank reads
    one run of consecutive batches, which may begin and end in the middle of clips. For ``"random"``, ranks take turns.

    Args:
        dataset: A ``MultiCameraDataset``, or a ``VideoDataset`` whose files are the clips.
        group_num: Clips in a batch.
        frame_read_type: ``"stream"`` or ``"random"``.
        shuffle: Shuffles clips (for streams) or samples in each epoch.
        seed: Seed of the shuffling.
        rank, world: Rank and number of ranks; None asks ``torch.distributed`` if it is initialised.
        drop_uneven: Drops the last batches of an epoch if not every rank would get one, so that all ranks have equally
            many batches, as ``DistributedDataParallel`` requires.

    Attributes:
        epoch: The epoch of the next iteration; change it with ``set_epoch``.
    """

    def __init__(
        self,
        dataset: FrameDataset,
        group_num: int = 4,
        *,
        frame_read_type: Literal["stream", "random"] = "random",
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        drop_uneven: bool = False,
    ) -> None:
        if frame_read_type not in _POSSIBLE:
            raise ValueError(f'frame_read_type must be "stream" or "random", got {frame_read_type!r}')
        self.dataset = dataset
        self.group_num = whole_number("group_num", group_num, least=1)
        self.frame_read_type = frame_read_type
        self.shuffle = shuffle
        self.seed = whole_number("seed", seed)
        self.rank, self.world = _rank_and_world(rank, world)
        self.drop_uneven = drop_uneven
        self.epoch = 0
        self._skip = 0
        if drop_uneven and len(dataset) and not len(self):
            raise ValueError(
                f"drop_uneven leaves no batches: there are fewer batches than the {self.world} ranks; use a smaller "
                "group_num or fewer ranks"
            )

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch. A loaded position is kept if it belongs to this epoch."""
        if whole_number("epoch", epoch) != self.epoch:
            self.epoch = epoch
            self._skip = 0

    def state_dict(self, batches_done: int) -> dict[str, Any]:
        """Returns the position after that many batches of the epoch, for ``load_state_dict``.

        The caller counts the batches it has used since the start of the epoch: worker processes read ahead of it.
        """
        done = whole_number("batches_done", batches_done)
        return {**self._identity(), "world": self.world, "epoch": self.epoch, "batches_done": done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes the next iteration at a saved position; the state of any rank works.

        Raises:
            StateError: The state belongs to another sampler, or was taken in mid-epoch with another number of ranks.
        """
        if not isinstance(state, dict):
            raise StateError("state", "is not a state of a VideoClipSampler")
        own = self._identity()
        different = [text for name, text in _SAME.items() if state.get(name) != own[name]]
        if different:
            raise StateError("state", f"belongs to another sampler: different {', '.join(different)}")
        try:
            epoch, done = whole_number("epoch", state["epoch"]), whole_number("batches_done", state["batches_done"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError("state", f"is damaged: {error}") from None
        if done and state.get("world") != self.world:
            raise StateError(
                "state",
                f"was taken in mid-epoch with {state.get('world')} ranks, not {self.world}; the number "
                "of ranks can only change between epochs",
            )
        if done > -(-self._count(epoch) // self.world):
            raise StateError("state", f"is damaged: {done} batches are done, more than the epoch has")
        self.epoch, self._skip = epoch, done

    def _identity(self) -> dict[str, Any]:
        return {
            "group_num": self.group_num,
            "frame_read_type": self.frame_read_type,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "drop_uneven": self.drop_uneven,
            "dataset": blake2b(self.dataset.counts.tobytes(), digest_size=8).hexdigest(),
        }

    def __len__(self) -> int:
        """Returns the number of batches of an epoch on this rank."""
        return len(self._share())

    def __iter__(self) -> Iterator[list[int]]:
        skip, self._skip = self._skip, 0
        share = self._share()[skip:]
        yield from self._random(share) if self.frame_read_type == "random" else self._stream(share)

    def _share(self) -> range:
        """Returns the batch numbers of this rank."""
        count = self._count(self.epoch)
        if self.frame_read_type == "random":
            return range(self.rank, count, self.world)
        return range(self.rank * count // self.world, (self.rank + 1) * count // self.world)

    def _count(self, epoch: int) -> int:
        """Returns the number of batches of an epoch, over all ranks."""
        if self.frame_read_type == "random":
            count = -(-len(self.dataset) // self.group_num)
        else:
            count = sum(length for _, length in self._streams(epoch))
        return count - count % self.world if self.drop_uneven else count

    def _random(self, share: range) -> Iterator[list[int]]:
        numbers = self._mixed(len(self.dataset), self.epoch, _SAMPLES)
        for batch in share:
            yield numbers[batch * self.group_num : (batch + 1) * self.group_num].tolist()

    def _stream(self, share: range) -> Iterator[list[int]]:
        counts = self.dataset.counts
        firsts = np.cumsum(counts) - counts
        begin = 0
        for clips, length in self._streams(self.epoch):
            for step in range(max(share.start - begin, 0), min(share.stop - begin, length)):
                yield [int(firsts[clip]) + step for clip in clips.tolist() if step < counts[clip]]
            begin += length

    def _streams(self, epoch: int) -> list[tuple[NDArray[np.int64], int]]:
        """Returns the clips that are read together, and the number of their batches."""
        counts = self.dataset.counts
        used = np.flatnonzero(counts)
        order = used[self._mixed(len(used), epoch, _CLIPS)]
        groups = [order[low : low + self.group_num] for low in range(0, len(order), self.group_num)]
        return [(clips, int(counts[clips].max())) for clips in groups]

    def _mixed(self, count: int, epoch: int, purpose: int) -> NDArray[np.int64]:
        if not self.shuffle:
            return np.arange(count, dtype=np.int64)
        return np.argsort(keys(count, self.seed, epoch, purpose), kind="stable").astype(np.int64, copy=False)


def _rank_and_world(rank: int | None, world: int | None) -> tuple[int, int]:
    if (rank is None) != (world is None):
        raise ValueError("rank and world must be given together")
    if rank is None or world is None:
        from torch import distributed

        if not (distributed.is_available() and distributed.is_initialized()):
            return 0, 1
        return distributed.get_rank(), distributed.get_world_size()
    if world < 1 or not 0 <= rank < world:
        raise ValueError(f"rank must be in 0..world-1, got rank {rank} of {world}")
    return rank, world
