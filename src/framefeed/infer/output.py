"""A run's output on the disk: the file, what is needed to go on with it, and a record of how it was made.

For ``detections.csv`` there are, while the run is not complete, a folder ``detections.csv.work`` with a journal of the
segments that are done, and at last ``detections.csv.run.json``, the record. Each step leaves the disk in a state from
which the same command goes on: the output appears, or is replaced, as a whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from framefeed._util.atomic_write import atomic_file, make_own_folder
from framefeed._util.run_state import as_json, cannot_write, changes, read_record, write_record
from framefeed.errors import OutputError, StateError
from framefeed.infer.journal import SegmentJournal
from framefeed.infer.rows import RowWriter, check_suffix

__all__ = ["Output"]

_RESTART = "restart=True (--restart) begins anew"


class Output:
    """The output of one run.

    Args:
        path: The file: ``.csv`` or ``.parquet``.
        identity: What has to be the same for it to be gone on with.
        restart: Whether to begin anew, whatever is there.

    Attributes:
        path: The file.
        folder: Where the run keeps what it needs until it is complete.
        journal: Segments that are done.

    Raises:
        StateError: Something else is there, or another process is at it.
        OutputError: It cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = Path(path)
        self._kind = check_suffix(path)
        self._record_path = self.path.with_name(self.path.name + ".run.json")
        self.folder = self.path.with_name(self.path.name + ".work")
        self._identity = as_json(identity)
        if self.path.is_dir():
            raise OutputError(self.path, "is a folder; give a file name in it")
        had_folder = self.folder.is_dir()
        try:
            make_own_folder(self.folder)
        except OSError as error:
            raise OutputError(self.path, f"cannot be written: {error.strerror or error}") from error
        self.journal = SegmentJournal(str(self.folder / "journal"))
        try:
            if restart:
                self._forget()
            self._before = self._found()
            if self._before is not None:
                self._compare("options", self._before["options"], self._identity)
            elif self.path.exists() and not restart and not (self.folder / "run.json").exists():
                raise StateError(
                    self.path,
                    "exists without a record of how it was made; choose another name, or restart=True (--restart) to "
                    "replace it",
                )
        except BaseException:
            self.close()
            if not had_folder:
                self._remove_folder()
            raise

    def _forget(self) -> None:
        """Removes what earlier runs have left, but not the output itself: that is replaced when the new one is done."""
        with _writing(self.path):
            self.journal.clear()
            for path in (self._record_path, self.folder / "run.json"):
                path.unlink(missing_ok=True)

    def _found(self) -> dict[str, Any] | None:
        """Returns the record of an earlier run, complete or not."""
        record = self._read(self._record_path)
        if record is not None and record.get("complete") and self.path.exists():
            return record
        begun = self._read(self.folder / "run.json") or record
        return begun if len(self.journal) or record else None  # where nothing was done, nothing is lost

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            found = read_record(path)
        except ValueError as error:
            raise StateError(path, f"{error}; {_RESTART}") from error
        if found is not None and not _is_record(found):
            raise StateError(path, f"is damaged; {_RESTART}")
        return found

    def _compare(self, what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        if changed := changes(before, now):
            raise StateError(
                self.path,
                f"was made, or begun, with other {what}: {changed}; choose another name, or restart=True (--restart) "
                "to begin anew",
            )

    def begin(self, videos: Mapping[str, Sequence[int] | None]) -> bool:
        """Notes which videos the run is about.

        Args:
            videos: By name, size and modification time; None for one that cannot be used.

        Returns:
            Whether all is done already.

        Raises:
            StateError: The run was begun with other videos.
        """
        now = {name: None if stamp is None else list(stamp) for name, stamp in videos.items()}
        if self._before is not None:
            before = self._before["videos"]
            # One that could not be used may be fine now, and the other way round: it is tried again.
            both = {name for name in now if now[name] is not None and before.get(name) is not None}
            self._compare(
                "videos",
                {name: stamp for name, stamp in before.items() if name in both or name not in now},
                {name: stamp for name, stamp in now.items() if name in both or name not in before},
            )
            if self._before.get("complete") and before == now and self.path.exists():
                return True
        self._write(self.folder / "run.json", {"videos": now})
        return False

    @property
    def summary(self) -> dict[str, Any]:
        """Returns the record of a complete run."""
        return dict((self._before or {}).get("summary", {}))

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        with _writing(path):
            write_record(path, self._identity, content, folder=self.folder)

    @contextmanager
    def rows(self, schema: Any) -> Iterator[RowWriter]:
        """Writes the output; it appears when the block ends without an error."""
        with _writing(self.path), atomic_file(self.path, sync=True, folder=self.folder) as file:
            writer = RowWriter(file, self._kind, schema)
            try:
                yield writer
                writer.close()
            except BaseException:
                writer.abandon()
                raise

    def finish(self, videos: Mapping[str, Sequence[int] | None], summary: Mapping[str, Any], *, complete: bool) -> None:
        """Writes the record. Where all is complete, what was needed to go on is removed."""
        stamps = {name: None if stamp is None else list(stamp) for name, stamp in videos.items()}
        self._write(self._record_path, {"videos": stamps, "complete": complete, "summary": summary})
        if complete:
            self._remove_folder()

    def leave(self) -> None:
        """Removes what was needed to find out that all is done."""
        self._remove_folder()

    def _remove_folder(self) -> None:
        with suppress(OSError):
            shutil.rmtree(self.folder)

    def give_up(self) -> None:
        """Leaves nothing behind where nothing was done."""
        if not self.journal:
            self._remove_folder()

    def close(self) -> None:
        """Leaves it to the next one."""
        self.journal.close()


def _is_record(found: Mapping[str, Any]) -> bool:
    """Returns whether values have the types of records."""
    videos, summary = found.get("videos"), found.get("summary", {})
    if not (isinstance(videos, dict) and isinstance(summary, dict)):
        return False
    stamps = (stamp for stamp in videos.values() if stamp is not None)
    if not all(isinstance(stamp, list) and [type(each) for each in stamp] == [int, int] for stamp in stamps):
        return False
    kinds: dict[str, type] = {"num_rows": int, "num_frames": int, "device": str}
    return all(isinstance(summary[name], kind) for name, kind in kinds.items() if name in summary)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turns the operating system's errors into one that names the output."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OutputError | StateError):
            raise
        raise OutputError(path, cannot_write(error)) from error
