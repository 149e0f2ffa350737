"""Counters of a loader."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoaderStats"]


@dataclass
class LoaderStats:
    """Counters of a loader since it was created; ``loader.stats()`` returns a copy.

    Attributes:
        batches: Batches delivered.
        samples_delivered: Samples in them.
        frames_delivered: Frames in them, counting repeats.
        packets_decoded: Packets fed to decoders.
        hits: Frames that were cached when their batch opened.
        misses: Frames that had to be decoded for their batch.
        bytes_read: Compressed bytes read.
        wait_seconds: Time the consumer has waited for batches, in seconds.
        memory_held: Bytes of cached frames, with spare room; never above ``memory_budget``.
        memory_peak: Largest value of ``memory_held``.
        skipped: Samples skipped because of an error.
        bytes_moved: Compressed bytes sent by worker processes.
        groups: Groups that batches needed from workers.
        group_hits: Groups that had been sent before.
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
        """Packets decoded per frame delivered; at least 1.0 unless packets are skipped or frames repeat."""
        return self.packets_decoded / self.frames_delivered if self.frames_delivered else 0.0

    @property
    def hit_rate(self) -> float:
        """Share of frames that were cached when their batch opened."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 0.0
