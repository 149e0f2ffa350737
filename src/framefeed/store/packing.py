"""Copies the packets of videos into shards, one video at a time, and writes the catalog of a packet store."""

from __future__ import annotations

import dataclasses
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed._util.atomic_write import sync_folder
from framefeed._util.progress import ProgressBar
from framefeed.catalog.arrow_file import BadEntry, write_file
from framefeed.catalog.catalog import BadFile, Catalog
from framefeed.catalog.catalog_rows import cast, encode, stored_schema
from framefeed.catalog.paths import STORE_CATALOG
from framefeed.errors import CatalogError, DecodeError, FileChanged, FramefeedError, InvalidFile, SourceError
from framefeed.index.video_index import Stored, VideoIndex
from framefeed.media.media import Fingerprint
from framefeed.source.packets import CutOff, media_of, open_source
from framefeed.source.shards import ShardWriter, shard_fingerprint, shard_name
from framefeed.store.found import Found, shards_in
from framefeed.store.store_journal import Placed, StoreJournal, key_of

__all__ = ["Packed", "Packing", "files_note", "progress_bar", "read_all", "reason"]

# Copied videos are committed when any of these is reached, which bounds the loss of a killed run.
COMMIT_SECONDS = 5.0
COMMIT_BYTES = 256 << 20

READ_BACK = 4 << 20  # bytes per read when reading back

# Limits of one batch of rows.
BATCH_VIDEOS = 2000
BATCH_PACKETS = 1 << 20


@dataclass(frozen=True)
class Packed:
    """Result of ``pack``.

    Attributes:
        catalog: The store's catalog.
        num_new: Videos copied by this call; the others were already in the store.
        num_shards: Files that hold the packets.
        video_bytes: Size of the videos in the store.
        store_bytes: Size of the shards and the catalog.
        bad: Videos that were left out, and why.
    """

    catalog: Catalog
    num_new: int
    num_shards: int
    video_bytes: int
    store_bytes: int
    bad: list[BadFile] = field(default_factory=list)


class Packing:
    """The state of a call of ``pack``."""

    def __init__(self, source: Catalog, folder: str, journal: StoreJournal, found: Found, shard_size: int) -> None:
        self._source = source
        self._folder = folder
        self._journal = journal
        self._shard_size = shard_size
        self._writer = found.writer
        self._next_number = found.next_number
        self._pending: list[tuple[Placed, int]] = []
        self._saved_at = time.monotonic()
        self._bad: list[BadFile] = []
        self._num_new = 0
        self._known = found.placed
        self._placed: list[Placed | None] = []

    def run(self, progress: bool | None, *, strict: bool) -> None:
        """Copies the videos that the store does not have yet."""
        num_bytes = 0
        for number in range(len(self._source)):
            index = self._source[number]
            self._placed.append(self._known.get(key_of(index)))
            if self._placed[-1] is None:
                num_bytes += int(index.packets.size.sum())
        todo = [number for number, placed in enumerate(self._placed) if placed is None]
        with progress_bar("packing", num_bytes, len(todo), progress) as bar:
            for done, number in enumerate(todo, 1):
                index = self._source[number]
                writer = self._room_for(int(index.packets.size.sum()))
                start = writer.end
                try:
                    self._placed[number] = self._copy(index, writer, bar)
                except (SourceError, InvalidFile, DecodeError) as error:
                    writer.rewind(start)
                    if strict:
                        self._commit()
                        raise
                    self._bad.append(BadFile(index.path, reason(index, error)))
                bar.advance(0, files_note(done, len(todo), len(self._bad)))
                late = time.monotonic() - self._saved_at > COMMIT_SECONDS
                if self._pending and (late or writer.end - self._pending[0][0].start > COMMIT_BYTES):
                    self._commit()
        self._commit()

    def _room_for(self, num_bytes: int) -> ShardWriter:
        """Returns the shard for a video of this size."""
        if self._writer is not None and self._writer.end and self._writer.end + num_bytes > self._shard_size:
            self._finish_shard()
        if self._writer is None:
            self._writer = ShardWriter(self._folder, self._next_number)
            self._next_number += 1
        return self._writer

    def _finish_shard(self) -> None:
        self._commit()
        if self._writer is not None:
            self._writer.finish()
            self._writer = None

    def _copy(self, index: VideoIndex, writer: ShardWriter, bar: ProgressBar) -> Placed:
        """Copies the packets of a video, and verifies them by reading the video again."""
        start, whole = writer.end, 0
        checksums = np.empty(len(index.packets), np.uint32)
        for number, data in read_all(index):
            checksums[number] = zlib.crc32(data)
            whole = zlib.crc32(data, whole)
            writer.write(data)
            bar.advance(len(data))
        if writer.end - start != int(index.packets.size.sum()):
            raise InvalidFile(index.path, "its packets do not have the sizes in its index")
        for number, data in read_all(index):
            if zlib.crc32(data) != checksums[number]:
                raise FileChanged(index.path, f"packet {number} differs when it is read again")
        writer.add(checksums)
        placed = Placed(key_of(index), writer.number, start, writer.end, checksums)
        self._pending.append((placed, whole))
        self._num_new += 1
        return placed

    def _commit(self) -> None:
        """Commits videos to the journal once their bytes are on the disk and read back correctly."""
        writer = self._writer
        if not self._pending or writer is None:
            return
        writer.sync(self._pending[0][0].start)
        for placed, whole in self._pending:
            found = 0
            for place in range(placed.start, placed.end, READ_BACK):
                found = zlib.crc32(writer.read(place, min(READ_BACK, placed.end - place)), found)
            if found != whole:
                name = os.path.join(self._folder, shard_name(writer.number))
                raise CatalogError(
                    name, f"reads back other bytes than were written for {placed.key[0]}; check the disk"
                )
        self._journal.add([placed for placed, _ in self._pending])
        self._pending.clear()
        self._saved_at = time.monotonic()

    def finish(self) -> Packed:
        """Writes the catalog, and removes unused shards and the journal."""
        if self._writer is not None and self._writer.end:
            self._finish_shard()
        used = sorted({placed.shard for placed in self._placed if placed is not None})
        fingerprints = {shard: shard_fingerprint(os.path.join(self._folder, shard_name(shard))) for shard in used}
        target = os.path.join(self._folder, STORE_CATALOG)
        schema = stored_schema([self._source.schema])
        bad = [*self._source.report, *self._bad]
        entries = [BadEntry(each.path, each.reason, "InvalidFile") for each in bad]
        catalog = Catalog(write_file(target, self._rows(schema, fingerprints), schema, entries))
        for name, number in shards_in(self._folder).items():
            if number not in fingerprints:
                with suppress(OSError):
                    os.unlink(os.path.join(self._folder, name))
        sync_folder(self._folder)
        self._journal.remove()
        return Packed(
            catalog,
            self._num_new,
            len(used),
            sum(placed.key[1][0] for placed in self._placed if placed is not None),
            sum(size for size, _ in fingerprints.values()) + os.path.getsize(target),
            self._bad,
        )

    def _rows(self, schema: Any, fingerprints: dict[int, Fingerprint]) -> Iterator[Any]:
        """Yields the catalog's rows, in batches."""
        batch: list[VideoIndex] = []
        num_packets = 0
        for number, placed in enumerate(self._placed):
            if placed is None:
                continue
            index = self._source[number]
            shard = os.path.join(self._folder, shard_name(placed.shard))
            batch.append(_stored(index, placed, shard, fingerprints[placed.shard]))
            num_packets += len(index.packets)
            if len(batch) == BATCH_VIDEOS or num_packets >= BATCH_PACKETS:
                yield cast(encode(batch), schema)
                batch, num_packets = [], 0
        if batch:
            yield cast(encode(batch), schema)

    def close(self) -> None:
        """Closes an unfinished shard; the next call resumes it."""
        if self._writer is not None:
            self._writer.close()


def read_all(index: VideoIndex) -> Iterator[tuple[int, bytes | memoryview]]:
    """Yields all packets of a video, from the file or a store."""
    try:
        yield from open_source(index, media_of(index)).read(np.arange(len(index.packets)))
    except CutOff as error:
        raise SourceError(index.path, error.reason) from None


def progress_bar(what: str, num_bytes: int, num_files: int, show: bool | None) -> ProgressBar:
    """Makes the bar for the packets of files."""
    return ProgressBar(what, num_bytes, show=show if num_files else False, unit="bytes", keep=True)


def files_note(done: int, num_files: int, num_bad: int) -> str:
    """Returns the note behind that bar."""
    return f"{done}/{num_files} files, {num_bad} bad"


def reason(index: VideoIndex, error: FramefeedError) -> str:
    """Returns the reason of an error, with the file's name if it is not the video."""
    return error.reason if error.path == index.path else str(error)


def _stored(index: VideoIndex, placed: Placed, shard: str, fingerprint: Fingerprint) -> VideoIndex:
    """Returns the index of a video with its packets in a shard."""
    sizes = index.packets.size
    pos: NDArray[np.int64] = placed.start + np.cumsum(sizes) - sizes
    return dataclasses.replace(
        index,
        fingerprint=fingerprint,
        packets=dataclasses.replace(index.packets, pos=pos),
        byte_ranges=True,
        stored=Stored(shard, placed.checksums, placed.key[1]),
    )
