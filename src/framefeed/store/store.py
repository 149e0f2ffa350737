"""Packet stores: the packets of many videos in a few large files.

A store is a folder with shards and a catalog whose packets lie in the shards. Everything that accepts a catalog reads
from the store, by byte range, whatever containers the videos had.

    >>> packed = pack("catalog.arrow", "store")  # doctest: +SKIP
    >>> dataset = VideoDataset(None, catalog="store")  # doctest: +SKIP
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from framefeed.catalog.catalog import BadFile, Catalog
from framefeed.catalog.paths import STORE_CATALOG, absolute
from framefeed.errors import CatalogError, SourceError
from framefeed.source.shards import ShardMedia
from framefeed.store.found import Found, shards_in
from framefeed.store.packing import Packed, Packing, files_note, progress_bar, read_all, reason
from framefeed.store.store_journal import StoreJournal

__all__ = ["SHARD_SIZE", "Packed", "Verified", "pack", "verify"]

SHARD_SIZE = 4 << 30


@dataclass(frozen=True)
class Verified:
    """Result of ``verify``.

    Attributes:
        num_videos: Videos that were read.
        num_shards: Files that hold their packets.
        num_bytes: Bytes of packets that match their checksums.
        bad: Videos with packets that do not, and why.
    """

    num_videos: int
    num_shards: int
    num_bytes: int
    bad: list[BadFile] = field(default_factory=list)


def pack(
    catalog: Catalog | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    shard_size: int = SHARD_SIZE,
    on_error: Literal["raise", "skip"] = "raise",
    progress: bool | None = None,
) -> Packed:
    """Copies the packets of all videos of a catalog into a store.

    The store's catalog is written, or replaced, when the store is complete. Packets are read twice from the videos and
    once from the finished shards, and must be equal. Call it again to resume an interrupted run; unchanged videos that
    a finished store already has are not copied again.

    Args:
        catalog: A ``Catalog`` or its path; may be the catalog of another store.
        out: Folder of the store.
        shard_size: Maximum bytes of a shard. A larger video gets a shard of its own: videos are not split.
        on_error: Treatment of a video that is missing, has changed or cannot be read: ``"raise"`` raises its error,
            ``"skip"`` leaves it out and adds it to ``bad``.
        progress: Whether to show a progress bar; None shows it on a terminal.

    Raises:
        CatalogError: The store cannot be written, or another process is writing it.
        FramefeedError: The error of a video, with ``on_error="raise"``.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    if shard_size < 1:
        raise ValueError(f"shard_size must be at least 1 byte, got {shard_size}")
    source = catalog if isinstance(catalog, Catalog) else Catalog.open(catalog)
    folder = absolute(os.fspath(out))
    _existing(folder, source)  # refuses before writing anything
    journal = StoreJournal(folder)
    try:
        found = Found(folder, _existing(folder, source), journal.entries)
        packing = Packing(source, folder, journal, found, shard_size)
        try:
            packing.run(progress, strict=on_error == "raise")
            return packing.finish()
        finally:
            packing.close()
    finally:
        journal.close()


def _existing(folder: str, source: Catalog) -> Catalog | None:
    """Creates the folder; returns the catalog of the store if there is one."""
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError:
        raise CatalogError(folder, "a file; choose another folder for the store") from None
    except OSError as error:
        raise CatalogError(folder, f"cannot be written ({error.strerror or error})") from error
    target = os.path.join(folder, STORE_CATALOG)
    if os.path.realpath(source.path) == os.path.realpath(target):
        raise CatalogError(folder, "contains the catalog to pack; choose another folder for the store")
    if not os.path.exists(target):
        return None
    found = Catalog.open(target)
    if not found.is_store:
        raise CatalogError(target, "a catalog of videos, which the store's would replace; choose another folder")
    return found


def verify(store: str | os.PathLike[str], *, progress: bool | None = None) -> Verified:
    """Reads all packets of a store and compares them with their checksums.

    Args:
        store: Folder of the store.
        progress: Whether to show a progress bar; None shows it on a terminal.

    Raises:
        CatalogError: The folder is not a store, the store is unfinished, or its catalog is damaged.
    """
    catalog = Catalog.open(store)
    if not catalog.is_store:
        raise CatalogError(catalog.path, "a catalog of videos, not of a packet store")
    folder = os.path.dirname(catalog.path)
    sizes = [os.path.getsize(os.path.join(folder, name)) for name in shards_in(folder)]
    shards: dict[str, bool] = {}  # checks that each is the expected shard
    bad: list[BadFile] = []
    num_bytes = 0
    with progress_bar("checking", sum(sizes), len(catalog), progress) as bar:
        for number in range(len(catalog)):
            index = catalog[number]
            media = ShardMedia(index)
            try:
                if not shards.setdefault(media.path, False):
                    media.check()
                    shards[media.path] = True
                for _, data in read_all(index):
                    bar.advance(len(data))
                num_bytes += int(index.packets.size.sum())
            except SourceError as error:
                bad.append(BadFile(index.path, reason(index, error)))
            bar.advance(0, files_note(number + 1, len(catalog), len(bad)))
    return Verified(len(catalog), len(shards), num_bytes, bad)
