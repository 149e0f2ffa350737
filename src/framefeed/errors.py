"""The exception tree.

Every error names its file and says what is possible. Each is also a builtin error, so existing ``except`` clauses keep
working. Errors marked with * are RuntimeErrors as well, which TorchCodec raises::

    FramefeedError
    ├── SourceError * (OSError)          the file is missing, unreadable, a directory ...
    │   └── FileChanged                  the file is not the one that was indexed
    ├── InvalidFile * (ValueError)       the bytes are not a video that can be read
    │   ├── NoVideoStream                readable, but without the requested video stream
    │   └── UnsupportedStream            a video whose frames cannot be told apart exactly
    ├── UnsupportedCodec * (ValueError)  no decoder is available for it
    ├── DecodeError (RuntimeError)       a wanted frame could not be decoded exactly
    ├── FrameIndexError (IndexError)     the frame number is out of range
    ├── FrameTimeError * (IndexError)    no frame is shown at that time
    ├── FrameSizeError (ValueError)      frames of different sizes cannot share a batch
    ├── CatalogError (ValueError)        the catalog is damaged or of another version
    ├── NotInCatalog (LookupError)       the catalog has no such video
    ├── ModelError (ValueError)          a model cannot be loaded, or has unexpected outputs
    ├── OutputError (OSError)            results cannot be written
    ├── SampleTimeout (TimeoutError)     a sample took longer than the loader may wait for it
    ├── StateError (ValueError)          a loader's state cannot be saved or read, or belongs to another loader
    └── MissingBackend * (ImportError)   an optional part is not installed
"""

from __future__ import annotations

from framefeed._util.text import printable

__all__ = [
    "CatalogError",
    "DecodeError",
    "FileChanged",
    "FrameIndexError",
    "FrameSizeError",
    "FrameTimeError",
    "FramefeedError",
    "InvalidFile",
    "MissingBackend",
    "ModelError",
    "NoVideoStream",
    "NotInCatalog",
    "OutputError",
    "SampleTimeout",
    "SourceError",
    "StateError",
    "UnsupportedCodec",
    "UnsupportedStream",
]


_NEW_LINE = "\n"


class FramefeedError(Exception):
    """Base of all framefeed errors.

    Args:
        path: Path of the file, or a description such as ``<bytes>``.
        reason: What is wrong, and what is possible instead.
    """

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = str(path)
        self.reason = reason

    def __str__(self) -> str:
        # OSError would print its two arguments as "[Errno path] reason". Control characters in file names would reach
        # the terminal through a traceback.
        return f"{printable(self.path)}: {printable(self.reason, keep=_NEW_LINE)}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.reason)


class SourceError(FramefeedError, OSError, RuntimeError):
    """The file is missing, unreadable or a directory."""


class FileChanged(SourceError):
    """The file is not the one that was indexed."""


class InvalidFile(FramefeedError, ValueError, RuntimeError):
    """The bytes are not a video that can be read."""


class NoVideoStream(InvalidFile):
    """The file is readable but lacks the requested video stream."""


class UnsupportedStream(InvalidFile):
    """The frames of this stream cannot be told apart exactly."""


class UnsupportedCodec(FramefeedError, ValueError, RuntimeError):
    """No decoder is available for this codec."""


class DecodeError(FramefeedError, RuntimeError):
    """A wanted frame could not be decoded exactly.

    Attributes:
        frame: Number of the first such frame in presentation order, or None if unknown.
        reasons: Reason for each failed frame, by number, as far as known.
    """

    def __init__(self, path: object, reason: str, frame: int | None = None) -> None:
        super().__init__(path, reason)
        self.frame = frame
        self.reasons: dict[int, str] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.reason, self.frame)


class FrameIndexError(FramefeedError, IndexError):
    """The frame number is out of range."""


class FrameTimeError(FramefeedError, IndexError, RuntimeError):
    """No frame is shown at that time. TorchCodec raises an IndexError or a RuntimeError, depending on the method."""


class FrameSizeError(FramefeedError, ValueError):
    """Frames of different sizes cannot share a batch."""


class CatalogError(FramefeedError, ValueError):
    """The catalog is damaged or was written by an incompatible version."""


class NotInCatalog(FramefeedError, KeyError, IndexError):
    """The catalog has no such video."""


class ModelError(FramefeedError, ValueError):
    """A model cannot be loaded, or has unexpected outputs."""


class OutputError(FramefeedError, OSError):
    """Results cannot be written."""


class SampleTimeout(FramefeedError, TimeoutError):
    """A sample took longer than the loader's timeout."""


class StateError(FramefeedError, ValueError):
    """A loader's state cannot be saved or read, or belongs to another loader."""


class MissingBackend(FramefeedError, ImportError, RuntimeError):  # type: ignore[misc]  # both have a path
    """An optional part is not installed."""
