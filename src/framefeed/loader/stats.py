"""What a loader has done."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoaderStats"]


@dataclass
class LoaderStats:
    """What a loader has done since it was made; ``loader.stats()`` gives a copy.

    Attributes:
        batches: Batches handed out.
        samples_delivered: Samples in them.
        frames_delivered: Frames in them, each as often as it was shown.
        packets_decoded: Packets that were fed to decoders.
        hits: Frames that were there already when their batch came.
        misses: Frames that had to be decoded for their batch.
        bytes_read: Compressed bytes.
        wait_seconds: How long the consumer has waited for batches.
        memory_held: Bytes of frames that are kept, with room for more; never above ``memory_budget``.
        memory_peak: The most there has been.
        skipped: Samples that were left out because of an error.
        bytes_moved: Compressed bytes that worker processes have sent.
        groups: Groups that batches needed from them.
        group_hits: Those of them that had been sent before.
    """

    batches: int = 0
    samples_delivered: int = 0
    frames_delivered: int = 0
    packets_decoded: int = 0
    hits: int = 0
    misses: int = 0
    bytes_read: int = 0
    wait_seconds: float = 0.0
    memory_held: int = 0
    memory_peak: int = 0
    skipped: int = 0
    bytes_moved: int = 0
    groups: int = 0
    group_hits: int = 0

    @property
    def decoded_per_delivered(self) -> float:
        """Packets decoded for each frame handed out; 1.0 is the least there is without skipped packets or repeats."""
        return self.packets_decoded / self.frames_delivered if self.frames_delivered else 0.0

    @property
    def hit_rate(self) -> float:
        """Share of frames that were there already when their batch came."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 0.0
