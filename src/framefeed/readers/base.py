"""What all readers have in common: arguments, checks, order of frames, errors."""

from __future__ import annotations

import importlib
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from framefeed._util.versions import installed_version
from framefeed.errors import DecodeError, FramefeedError, FrameIndexError, InvalidFile, MissingBackend, SourceError

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

__all__ = ["GO_ON", "AbstractVideoReader", "one_line"]

FORMATS = ("THWC", "TCHW")
GO_ON = 32  # frames that are decoded and left out in mode "stream" rather than sought over
MESSAGE = 300  # characters of another library's error that are worth showing


class AbstractVideoReader(ABC):
    """Frames of one video by number, read by some library.

    One reader is for one thread; several readers may be used side by side.

    Args:
        video_path: A file.
        mode: ``"seek"`` finds each frame by itself, with one seek or lookup for each number. ``"stream"`` goes once
            from the first wanted frame to the last and picks; where the library has a call for many frames, it is
            given all of them in ascending order, and may leave out what it does not need.
        output_format: ``"THWC"`` or ``"TCHW"``, as shape; memory stays as the library lays it out.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``: where frames are decoded, and where they are.
        num_threads: Of the decoder, where the library lets one choose; 0 leaves it to the library.

    Attributes:
        name: What tables call it.
        package: The module that is imported.
        install: The command that installs it.
        devices: Where it can decode.
        modes: Those it has.
        exact: Whether no sort of file is known on which it gives another frame than the one that was asked for.
        remarks: Where it is not exact, and why.

    Raises:
        ValueError: An argument is none of those that are possible.
        MissingBackend: The library or the device cannot be used here.
        SourceError: There is no such file.
        InvalidFile: The library cannot open it.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    install: ClassVar[str]
    distributions: ClassVar[tuple[str, ...]]
    """What has the package, as pip calls it."""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    modes: ClassVar[tuple[str, ...]] = ("seek", "stream")
    exact: ClassVar[bool] = True
    remarks: ClassVar[str] = ""

    def __init__(
        self,
        video_path: str | os.PathLike[str],
        mode: Literal["seek", "stream"] = "stream",
        output_format: Literal["THWC", "TCHW"] = "THWC",
        device: str | torch.device = "cpu",
        *,
        num_threads: int = 0,
    ) -> None:
        self._closed = True
        if mode not in self.modes:
            raise ValueError(f"mode={mode!r} is not supported by {self.name}; possible: {_listed(self.modes)}")
        if output_format not in FORMATS:
            raise ValueError(f"output_format={output_format!r} is not supported; possible: {_listed(FORMATS)}")
        if not isinstance(num_threads, int) or num_threads < 0:
            raise ValueError(f"num_threads={num_threads!r} should be an int, 0 to leave it to {self.name}")
        self.path = os.fspath(video_path)
        self.mode = mode
        self.output_format = output_format
        self.num_threads = num_threads
        self.device = self.check_device(device)
        self._library: Any = self.load()
        if not os.path.isfile(self.path):
            raise SourceError(self.path, "there is no such file")
        from framefeed.media.media import PathMedia  # here, because NumPy and PyAV come with them
        from framefeed.media.opening import refuse_playlist

        refuse_playlist(PathMedia(self.path))
        try:
            self._num_frames = self._open()
        except FramefeedError:
            raise
        except Exception as error:
            raise InvalidFile(self.path, f"{self.name} cannot open it: {one_line(error)}") from error
        self._closed = False

    # --- what a library has to do ---------------------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> int:
        """Opens the file; returns how many frames it has."""

    @abstractmethod
    def _seek(self, number: int) -> torch.Tensor:
        """One frame, (height, width, 3) bytes in memory of its own."""

    @abstractmethod
    def _stream(self, numbers: list[int]) -> torch.Tensor:
        """Frames, (frames, height, width, 3) bytes in memory of their own; numbers are ascending, not empty."""

    def _close(self) -> None:  # noqa: B027  # most libraries close a file when it is forgotten
        """Lets the file go."""

    @classmethod  # noqa: B027  # importing is all that most of them need
    def _check_library(cls, library: Any) -> None:
        """Raises where the library that is installed lacks what is needed."""

    # --- what is the same for all ---------------------------------------------------------------------------------

    @classmethod
    def load(cls) -> Any:
        """The library.

        Raises:
            MissingBackend: It is not installed, or cannot be loaded; the error says why and what to do.
        """
        try:
            library = importlib.import_module(cls.package)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{cls.package}.".startswith(f"{error.name}."):
                raise MissingBackend(cls.package, f"cannot be loaded: {one_line(error)}") from error
            raise MissingBackend(cls.package, f"is not installed: {cls.install}") from error
        except Exception as error:  # a shared library is missing, a driver, another version of something ...
            raise MissingBackend(cls.package, f"is installed and cannot be loaded: {one_line(error)}") from error
        cls._check_library(library)
        return library

    @classmethod
    def version(cls) -> str | None:
        """Of the library, None where it is not installed. Does not load it."""
        for distribution in cls.distributions:
            found = installed_version(distribution)
            if found is not None:
                return found
        return None

    @classmethod
    def check_device(cls, device: str | torch.device) -> torch.device:
        """The device that is meant.

        Raises:
            ValueError: The library does not decode there.
            MissingBackend: There is no such device here.
        """
        import torch

        try:
            chosen = torch.device(device)
        except RuntimeError:
            chosen = None
        if chosen is None or chosen.type not in cls.devices:
            raise ValueError(f"device={str(device)!r} is not supported by {cls.name}; possible: {_listed(cls.devices)}")
        if chosen.type == "cpu":
            return chosen
        if not torch.cuda.is_available():
            reason = "torch finds no usable GPU" if torch.version.cuda else "this torch was built without CUDA"
            raise MissingBackend(str(chosen), reason)
        number = torch.cuda.current_device() if chosen.index is None else chosen.index
        if number >= torch.cuda.device_count():
            raise ValueError(f"device={str(device)!r}: there are {torch.cuda.device_count()} GPUs here, counted from 0")
        return torch.device("cuda", number)

    @property
    def num_frames(self) -> int:
        """As many as the library says there are."""
        return self._num_frames

    @property
    def frames_decoded(self) -> int | None:
        """Packets or frames that were decoded since the start, where the library can tell."""
        return None

    def read_frames(self, indices: Sequence[int]) -> torch.Tensor:
        """Frames by number, in that order, repeated or not.

        Returns:
            RGB bytes of the shape that ``output_format`` says.

        Raises:
            FrameIndexError: There is no such frame; an ``IndexError``.
            DecodeError: The library failed.
        """
        import torch

        if self._closed:
            raise ValueError(f"{self.path}: the reader is closed")
        wanted = [operator.index(number) for number in indices]
        for number in wanted:
            if not 0 <= number < self.num_frames:
                reason = f"no frame {number}; {self.name} finds {self.num_frames} frames, counted from 0"
                raise FrameIndexError(self.path, reason)
        try:
            if self.mode == "seek":
                frames = torch.stack([self._seek(number) for number in wanted or [0]])
            else:
                order = sorted(set(wanted or [0]))
                frames = self._stream(order)
                if order != wanted:
                    places = {number: place for place, number in enumerate(order)}
                    frames = frames[[places[number] for number in wanted or [0]]]
        except FramefeedError:
            raise
        except Exception as error:
            raise DecodeError(self.path, f"{self.name} cannot read frames: {one_line(error)}") from error
        # Without numbers, a frame was read for its size.
        frames = frames[: len(wanted)]
        return frames if self.output_format == "THWC" else frames.permute(0, 3, 1, 2)

    def close(self) -> None:
        """Lets the file go; reading is refused afterwards. May be called twice."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"{type(self).__name__}({self.path!r}, {self.mode}, {self.device}, {self.num_frames} frames{state})"


def one_line(error: BaseException) -> str:
    """What another library says, shortened."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MESSAGE else f"{text[:MESSAGE]} ..."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
