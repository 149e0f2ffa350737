"""Contents of a packet store's folder: a finished store, and leftovers of an interrupted call."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress

from framefeed.catalog.catalog import Catalog
from framefeed.errors import CatalogError, SourceError
from framefeed.media.media import Fingerprint
from framefeed.source.shards import (
    TRAILER_SIZE,
    ShardWriter,
    check_value,
    shard_fingerprint,
    shard_name,
    shard_number,
)
from framefeed.store.store_journal import Placed, VideoKey, key_of

__all__ = ["Found", "shards_in"]


class Found:
    """Contents of the folder that a store is written to.

    Args:
        folder: Of the store.
        old: The catalog of the store as it was finished once.
        entries: What was noted since.

    Attributes:
        placed: Videos whose packets are there.
        writer: The shard to go on with, if there is one.
        next_number: Of the shard that comes next.
    """

    def __init__(self, folder: str, old: Catalog | None, entries: list[Placed]) -> None:
        self._folder = folder
        self.placed: dict[VideoKey, Placed] = {}
        self.writer: ShardWriter | None = None
        self._add_old(old)
        by_shard: dict[int, list[Placed]] = defaultdict(list)
        for entry in entries:
            by_shard[entry.shard].append(entry)
        for shard, here in by_shard.items():
            self._add_noted(shard, here, last=shard == max(by_shard))
        going_on = None if self.writer is None else shard_name(self.writer.number)
        for name in shards_in(folder):
            if name.endswith(".part") and name.removesuffix(".part") != going_on:
                with suppress(OSError):
                    os.unlink(os.path.join(folder, name))
        # Of no file that is there, or that was noted and is not what it should be.
        self.next_number = 1 + max([*by_shard, *shards_in(folder).values()], default=-1)

    def _add_old(self, old: Catalog | None) -> None:
        whole: dict[str, Fingerprint | None] = {}
        for number in range(0 if old is None else len(old)):
            assert old is not None
            try:
                index = old[number]
            except CatalogError:  # a damaged row: the video is packed again
                continue
            stored, packets = index.stored, index.packets
            assert stored is not None
            if stored.shard not in whole:
                whole[stored.shard] = _fingerprint(stored.shard)
            shard = shard_number(os.path.basename(stored.shard))
            if whole[stored.shard] == index.fingerprint and shard is not None:
                key, end = key_of(index), int(packets.pos[-1] + packets.size[-1])
                self.placed[key] = Placed(key, shard, int(packets.pos[0]), end, stored.checksums)

    def _add_noted(self, shard: int, entries: list[Placed], *, last: bool) -> None:
        """Takes what was noted of a shard, if the file is what it should be."""
        entries = sorted(entries, key=lambda entry: entry.start)
        end, checksums = entries[-1].end, [entry.checksums for entry in entries]
        path = os.path.join(self._folder, shard_name(shard))
        if _fingerprint(path) != (end + TRAILER_SIZE, check_value(checksums)):
            part = f"{path}.part"
            if not last or os.path.islink(part) or not os.path.isfile(part) or os.path.getsize(part) < end:
                return
            self.writer = ShardWriter(self._folder, shard, end, checksums)
        self.placed |= {entry.key: entry for entry in entries}


def _fingerprint(path: str) -> Fingerprint | None:
    try:
        return shard_fingerprint(path)
    except SourceError:
        return None


def shards_in(folder: str) -> dict[str, int]:
    """The numbers of all shards in a folder, finished or not, by file name."""
    numbers = {name: shard_number(name) for name in os.listdir(folder)}
    return {name: number for name, number in numbers.items() if number is not None}
