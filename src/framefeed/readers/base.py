"""Base class of readers: arguments, checks, frame order, errors."""

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
GO_ON = 32  # in mode "stream", gaps up to this many frames are decoded rather than sought over
MESSAGE = 300  # characters shown of another library's error


class AbstractVideoReader(ABC):
    """Reads frames of one video by number, with some library.

    A reader belongs to one thread; several readers may be used in parallel.

    Args:
        video_path: A file.
        mode: ``"seek"`` finds each frame on its own, with one seek or lookup per number. ``"stream"`` reads once from
            the first requested frame to the last; a library with a call for many frames gets all of them in ascending
            order, and may skip what it does not need.
        output_format: ``"THWC"`` or ``"TCHW"``, as shape; memory keeps the library's layout.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``: device of decoding and of the frames.
        num_threads: Decoder threads, if the library supports it; 0 uses the library's default.

    Attributes:
        name: Name in tables.
        package: The imported module.
        install: The command that installs it.
        devices: Supported devices.
        modes: Supported modes.
        exact: True if no kind of file is known for which it returns wrong frames.
        remarks: Files for which it is not exact, and why.

    Raises:
        ValueError: An argument is not supported.
        MissingBackend: The library or the device cannot be used.
        SourceError: The file does not exist.
        InvalidFile: The library cannot open the file.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    install: ClassVar[str]
    distributions: ClassVar[tuple[str, ...]]
    """Distributions that contain the package, by their names on PyPI."""
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
            raise ValueError(f"mode={mode!r} is not supported by {self.name}; expected {_listed(self.modes)}")
        if output_format not in FORMATS:
            raise ValueError(f"output_format={output_format!r} is not supported; expected {_listed(FORMATS)}")
        if not isinstance(num_threads, int) or num_threads < 0:
            raise ValueError(f"num_threads must be an int (0 for the default of {self.name}), got {num_threads!r}")
        self.path = os.fspath(video_path)
        self.mode = mode
        self.output_format = output_format
        self.num_threads = num_threads
        self.device = self.check_device(device)
        self._library: Any = self.load()
        if not os.path.isfile(self.path):
            raise SourceError(self.path, "no such file")
        from framefeed.media.media import PathMedia  # lazy: imports NumPy and PyAV
        from framefeed.media.opening import refuse_playlist

        refuse_playlist(PathMedia(self.path))
        try:
            self._num_frames = self._open()
        except FramefeedError:
            raise
        except Exception as error:
            raise InvalidFile(self.path, f"{self.name} cannot open it: {one_line(error)}") from error
        self._closed = False

    # --- for subclasses -------------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> int:
        """Opens the file; returns its number of frames."""

    @abstractmethod
    def _seek(self, number: int) -> torch.Tensor:
        """Reads one frame, (height, width, 3) bytes in memory of its own."""

    @abstractmethod
    def _stream(self, numbers: list[int]) -> torch.Tensor:
        """Reads frames, (frames, height, width, 3) bytes in memory of their own; numbers are ascending, not empty."""

    def _close(self) -> None:  # noqa: B027  # most libraries close a file with its object
        """Closes the file."""

    @classmethod  # noqa: B027  # for most, importing is enough
    def _check_library(cls, library: Any) -> None:
        """Checks that the installed library has what is needed."""

    # --- common ---------------------------------------------------------------------------------------------------

    @classmethod
    def load(cls) -> Any:
        """Imports the library.

        Raises:
            MissingBackend: It is not installed, or cannot be loaded; the error tells why and what to do.
        """
        try:
            library = importlib.import_module(cls.package)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{cls.package}.".startswith(f"{error.name}."):
                raise MissingBackend(cls.package, f"cannot be loaded: {one_line(error)}") from error
            raise MissingBackend(cls.package, f"is not installed: {cls.install}") from error
        except Exception as error:  # a missing shared library, driver, other version ...
            raise MissingBackend(cls.package, f"is installed but cannot be loaded: {one_line(error)}") from error
        cls._check_library(library)
        return library

    @classmethod
    def version(cls) -> str | None:
        """Returns the library's version, None if it is not installed. Does not import it."""
        for distribution in cls.distributions:
            found = installed_version(distribution)
            if found is not None:
                return found
        return None

    @classmethod
    def check_device(cls, device: str | torch.device) -> torch.device:
        """Resolves a device.

        Raises:
            ValueError: The library does not support the device.
            MissingBackend: There is no such device.
        """
        import torch

        try:
            chosen = torch.device(device)
        except RuntimeError:
            chosen = None
        if chosen is None or chosen.type not in cls.devices:
            raise ValueError(f"device={str(device)!r} is not supported by {cls.name}; expected {_listed(cls.devices)}")
        if chosen.type == "cpu":
            return chosen
        if not torch.cuda.is_available():
            reason = "torch finds no usable GPU" if torch.version.cuda else "this torch was built without CUDA"
            raise MissingBackend(str(chosen), reason)
        number = torch.cuda.current_device() if chosen.index is None else chosen.index
        if number >= torch.cuda.device_count():
            raise ValueError(f"device={str(device)!r} is out of range: found {torch.cuda.device_count()} GPUs")
        return torch.device("cuda", number)

    @property
    def num_frames(self) -> int:
        """Number of frames, as reported by the library."""
        return self._num_frames

    @property
    def frames_decoded(self) -> int | None:
        """Packets or frames decoded so far, if the library can tell."""
        return None

    def read_frames(self, indices: Sequence[int]) -> torch.Tensor:
        """Reads frames by number, in the given order, with repeats.

        Returns:
            RGB bytes with the shape of ``output_format``.

        Raises:
            FrameIndexError: A frame does not exist; an ``IndexError``.
            DecodeError: The library failed.
        """
        import torch

        if self._closed:
            raise ValueError(f"{self.path}: the reader is closed")
        wanted = [operator.index(number) for number in indices]
        for number in wanted:
            if not 0 <= number < self.num_frames:
                reason = f"no frame {number}; {self.name} finds {self.num_frames} frames"
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
        # Without numbers, one frame was read for its size.
        frames = frames[: len(wanted)]
        return frames if self.output_format == "THWC" else frames.permute(0, 3, 1, 2)

    def close(self) -> None:
        """Closes the file; reading afterwards raises. May be called twice."""
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
    """Formats another library's error in one line, shortened."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MESSAGE else f"{text[:MESSAGE]} ..."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
