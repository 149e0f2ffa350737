"""``VideoClipSampler``: a few clips at a time, read through in order or at random."""

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

_CLIPS, _SAMPLES = 6, 7  # what keys are for; the numbers below are those of the orders

_POSSIBLE = ("stream", "random")

# What has to be the same for a state to fit; the texts say what each is.
_SAME = {
    "group_num": "group_num",
    "frame_read_type": "frame_read_type",
    "shuffle": "shuffle",
    "seed": "seed",
    "drop_uneven": "drop_uneven",
    "dataset": "clips or lengths of clips",
}


class VideoClipSampler(Sampler[list[int]]):
    """Batches of one sample each of several clips, for ``batch_sampler=`` of a loader.

    With ``"stream"`` the clips of a batch stay together and are read through from their first frame to their last; the
    next clips follow. A batch has fewer samples where some of its clips have ended. With ``"random"`` every batch is
    made of any samples of any clips. Each sample comes once an epoch.

    Batches are the same for any number of ranks, which share them so that their numbers of batches differ by one at
    most. For streams each rank reads one run of consecutive batches: a rank may begin, and another end, in the middle
    of clips. For ``"random"`` ranks take turns.

    Args:
        dataset: A ``MultiCameraDataset``, or a ``VideoDataset`` whose files are the clips.
        group_num: Clips of a batch.
        frame_read_type: ``"stream"`` or ``"random"``.
        shuffle: Whether clips (for streams) or samples come in another order each epoch.
        seed: For these orders.
        rank, world: Which of how many processes this is; None asks ``torch.distributed``, where it is used.
        drop_uneven: Leaves out the epoch's last batches, fewer than there are ranks, so that all ranks have the same
            number of batches, as ``DistributedDataParallel`` needs it.

    Attributes:
        epoch: The epoch that the next iteration is of; ``set_epoch`` changes it.
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
            raise ValueError(f'frame_read_type is "stream" or "random", not {frame_read_type!r}')
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
                f"with drop_uneven nothing is left: there is not a batch for each of the {self.world} ranks; give a "
                "smaller group_num, or fewer ranks"
            )

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch. Where it is the one that a loaded state is of, the next iteration still goes on there."""
        if whole_number("epoch", epoch) != self.epoch:
            self.epoch = epoch
            self._skip = 0

    def state_dict(self, batches_done: int) -> dict[str, Any]:
        """Where an epoch stands after that many of its batches, for ``load_state_dict``.

        Whoever reads the batches has to count them, from the epoch's beginning: workers are ahead of that.
        """
        done = whole_number("batches_done", batches_done)
        return {**self._identity(), "world": self.world, "epoch": self.epoch, "batches_done": done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on where the state was taken; a state of any rank will do.

        Raises:
            StateError: It belongs to another sampler, or was taken in mid-epoch with another number of ranks.
        """
        if not isinstance(state, dict):
            raise StateError("state", "is no state of a VideoClipSampler")
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
                f"was taken in the middle of an epoch by {state.get('world')} ranks, here are {self.world}; the number "
                "of ranks can change between epochs only",
            )
        if done > -(-self._count(epoch) // self.world):
            raise StateError("state", f"is damaged: {done} batches are done of an epoch that has fewer")
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
        """Batches of an epoch, on this rank."""
        return len(self._share())

    def __iter__(self) -> Iterator[list[int]]:
        skip, self._skip = self._skip, 0
        share = self._share()[skip:]
        yield from self._random(share) if self.frame_read_type == "random" else self._stream(share)

    def _share(self) -> range:
        """The numbers of this rank's batches among those of the epoch."""
        count = self._count(self.epoch)
        if self.frame_read_type == "random":
            return range(self.rank, count, self.world)
        return range(self.rank * count // self.world, (self.rank + 1) * count // self.world)

    def _count(self, epoch: int) -> int:
        """Batches of an epoch, of all ranks together."""
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
        """The clips that are read together, and how many batches they give."""
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
        raise ValueError("give both rank and world, or neither")
    if rank is None or world is None:
        from torch import distributed

        if not (distributed.is_available() and distributed.is_initialized()):
            return 0, 1
        return distributed.get_rank(), distributed.get_world_size()
    if world < 1 or not 0 <= rank < world:
        raise ValueError(f"rank is in 0..world-1, got rank {rank} of {world}")
    return rank, world
