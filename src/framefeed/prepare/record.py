"""Contents of an output folder, the options they were made with, and the work left after an interrupted run.

``prepared.json`` in the output folder is the record: options, and for each video where it came from. It is written when
a run is over. Until then there is a folder ``.prepare`` with a journal, and with files that are not complete. Finished
files are renamed from there to their places, and only then noted: what a kill leaves between the two is done again,
with the same result.

A name is claimed in the journal before anything gets it: files of other origin are told apart, and not replaced.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from framefeed._util.atomic_write import replace
from framefeed._util.journal import Journal, JournalInUse
from framefeed._util.run_state import as_json, cannot_write, changes, read_record, write_record
from framefeed.catalog.paths import absolute
from framefeed.errors import OutputError, StateError
from framefeed.prepare.sources import SourceVideo
from framefeed.prepare.values import Prepared, PreparedFile, check_below

__all__ = ["RECORD", "Record"]

RECORD = "prepared.json"
WORK, JOURNAL = ".prepare", "journal"

_GO_ON = "choose another folder, or restart=True (--restart) to begin anew"


class Record:
    """The record of an output folder. Only one process has it open at a time.

    Args:
        out: The folder.
        options: What has to be the same for it to be gone on with.
        made_with: Versions, which are noted only.
        suffix: Of outputs, with the dot.
        restart: Whether to begin anew. What the record knows of is then removed.

    Attributes:
        done: What is done, by stem.
        work: The folder for files that are not complete.

    Raises:
        StateError: It was made with other options, or another process is at it.
        OutputError: It cannot be written.
    """

    def __init__(
        self, out: Path, options: Mapping[str, Any], made_with: Mapping[str, str], suffix: str, *, restart: bool
    ) -> None:
        self.out = out
        self.work = out / WORK
        self._options: dict[str, Any] = as_json(options)
        self._made_with = dict(made_with)
        self._suffix = suffix
        self.done: dict[str, Prepared] = {}
        self._claimed: set[str] = set()
        self._restarted = restart
        self._was_new = not out.exists()
        self._lines: list[dict[str, Any]] = []  # of the journal, when it was opened
        with self._writing():
            self._journal = Journal(self.work / JOURNAL, self._take, make_folder=True)
        # Whether it says anything that the record does not.
        self._lasting = bool(self._lines)
        try:
            with self._writing():
                self._load()
        except BaseException:
            self.give_up()
            raise

    # --- what is there ----------------------------------------------------------------------------------------------

    def _take(self, _: int, record: bytes) -> None:
        self._lines.append(_parse(record))

    def _say(self, line: Mapping[str, Any]) -> None:
        """Appends a line to the journal."""
        self._journal.append(_line(line))

    def _load(self) -> None:
        begun: dict[str, Any] | None = None
        removed: list[str] = []
        try:
            begun, removed = self._load_journal()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, StateError):
                raise
            if not self._restarted:
                raise StateError(self.work / JOURNAL, f"is damaged ({error}); {_GO_ON}") from error
        self._remove(removed)
        if self._restarted:
            self._begin_anew()
        elif begun is None:
            self._say({"begin": {"options": self._options, "continues": True}})
        elif self.done:
            self._compare(begun["options"])
        elif begun["options"] != self._options:  # where nothing was done, nothing is lost
            self._begin_anew()

    def _load_journal(self) -> tuple[dict[str, Any] | None, list[str]]:
        """Takes what is noted; returns how the run was begun, and files of a run before it that have to go."""
        lines = self._lines
        begun = lines[0].get("begin") if lines else None
        if begun is None or begun["continues"]:
            self._load_record()
        removed: list[str] = []
        for line in lines:
            for name in (*line.get("claim", ()), *line.get("remove", ())):
                check_below(name)
            self._claimed.update(line.get("claim", ()))
            removed += line.get("remove", ())
            if "done" in line:
                self._note(Prepared.from_json(line["done"]))
        if begun is not None and not isinstance(begun["options"], dict):
            raise ValueError("it does not say how it was begun")
        return begun, removed

    def _load_record(self) -> None:
        path = self.out / RECORD
        try:
            found = read_record(path)
            if found is None:
                return
            videos = [Prepared.from_json(each) for each in found["videos"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if self._restarted:
                return
            raise StateError(path, f"cannot be used ({error}); {_GO_ON}") from error
        if videos and not self._restarted:
            self._compare(found["options"])
        for each in videos:
            self._note(each)

    def _compare(self, before: Mapping[str, Any]) -> None:
        if changed := changes(before, self._options):
            raise StateError(self.out, f"was made, or begun, with other options: {changed}; {_GO_ON}")

    def _note(self, prepared: Prepared) -> None:
        self.done[prepared.stem] = prepared
        self._claimed.add(prepared.stem)

    def _begin_anew(self) -> None:
        """Removes what the record knows of; first of all it is noted that this is under way."""
        self._lasting = True
        old = self.outputs()
        first = {"options": self._options, "continues": False}
        lines: list[dict[str, Any]] = [{"begin": first}, {"claim": sorted(self._claimed)}, {"remove": old}]
        self._journal.replace_all(*map(_line, lines))
        self.done.clear()
        self._remove(old)
        (self.out / RECORD).unlink(missing_ok=True)

    def _remove(self, files: Iterable[str]) -> None:
        """Removes outputs of an earlier run, but not what has come in their places."""
        now = set(self.outputs())
        for file in files:
            if file not in now:
                (self.out / file).unlink(missing_ok=True)

    def outputs(self) -> list[str]:
        """All files that are done, below the folder, sorted."""
        return sorted(output.file for prepared in self.done.values() for output in prepared.outputs)

    # --- what is to be done -----------------------------------------------------------------------------------------

    def is_done(self, source: SourceVideo) -> bool:
        """Returns whether all outputs of a video are there, made from the file as it is now.

        Raises:
            StateError: They are those of another video.
        """
        found = self.done.get(source.stem)
        if found is None:
            return False
        if found.source != absolute(source.path) and os.path.exists(found.source):
            raise StateError(
                self.out,
                f"what is called {source.stem!r} there was made from {found.source}, not from {source.path}; rename "
                "one of them, or choose another folder",
            )
        return found.fingerprint == source.fingerprint and all(map(self._is_whole, found.outputs))

    def _is_whole(self, output: PreparedFile) -> bool:
        try:
            return (self.out / output.file).stat().st_size == output.num_bytes
        except OSError:
            return False

    def claim(self, sources: Sequence[SourceVideo], *, scenes: bool) -> None:
        """Notes that names will be used.

        Raises:
            StateError: Some file of other origin has one of them.
        """
        new = [source.stem for source in sources if source.stem not in self._claimed]
        for stem in new if not self._restarted else ():
            for file in self._files_of(stem, scenes=scenes):
                raise StateError(
                    file,
                    "is there without a record of how it was made; choose another folder, or restart=True "
                    "(--restart) to replace it",
                )
        if new:
            with self._writing():
                self._say({"claim": new})
            self._claimed.update(new)

    def _files_of(self, stem: str, *, scenes: bool) -> list[Path]:
        """Files that outputs of that stem may be called."""
        if not scenes:
            file = self.out / f"{stem}{self._suffix}"
            return [file] if os.path.lexists(file) else []
        folder, name = (self.out / stem).parent, Path(stem).name
        pattern = re.compile(rf"{re.escape(name)}_[0-9]{{4,}}{re.escape(self._suffix)}")
        return sorted(path for path in folder.glob("*") if pattern.fullmatch(path.name)) if folder.is_dir() else []

    # --- what has been done -----------------------------------------------------------------------------------------

    def place(self, prepared: Prepared, files: Sequence[Path]) -> None:
        """Gives finished files their names, and notes it.

        Args:
            prepared: What they are.
            files: Where they are now, as ``prepared.outputs`` has them.
        """
        self._lasting = True
        with self._writing():
            for output, file in zip(prepared.outputs, files, strict=True):
                target = self.out / output.file
                target.parent.mkdir(parents=True, exist_ok=True)
                replace(file, target)
            before = self.done.get(prepared.stem)
            self._note(prepared)
            if before is not None:
                self._remove(output.file for output in before.outputs)  # scenes that there are no more
            self._say({"done": asdict(prepared)})

    def finish(self, bad: Mapping[str, str]) -> None:
        """Writes the record; the journal is not needed any more.

        Args:
            bad: Videos that could not be prepared, and why.
        """
        content = {
            "made_with": self._made_with,
            "videos": [asdict(self.done[stem]) for stem in sorted(self.done)],
            "bad": [{"source": path, "reason": reason} for path, reason in sorted(bad.items())],
        }
        with self._writing():
            write_record(self.out / RECORD, self._options, content, folder=self.work)
            shutil.rmtree(self.work)
        self._journal.close()

    def clear_work(self) -> None:
        """Removes files that are not complete. What was found out about the sources stays."""
        for path in self.work.iterdir() if self.work.is_dir() else ():
            if path.name != JOURNAL and not path.name.startswith("sources"):
                with suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def give_up(self) -> None:
        """Leaves it to the next run; where nothing was done, nothing stays."""
        self.clear_work()
        if not self._lasting:
            (self.work / JOURNAL).unlink(missing_ok=True)
            for folder in (self.work, self.out) if self._was_new else (self.work,):
                with suppress(OSError):  # there is something in it
                    folder.rmdir()
        self._journal.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except JournalInUse:
            raise StateError(self.out, "another process is preparing videos into this folder") from None
        except OSError as error:
            raise error if isinstance(error, OutputError) else OutputError(self.out, cannot_write(error)) from error


def _line(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line).encode()


def _parse(record: bytes) -> dict[str, Any]:
    try:
        found = json.loads(record)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found
