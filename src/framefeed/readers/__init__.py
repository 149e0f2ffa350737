"""Video readers: other libraries behind one small interface, for comparison and for their users.

Importing this package imports none of them: a library is loaded with its first reader.
"""

from framefeed.readers.base import AbstractVideoReader
from framefeed.readers.registry import READERS, ReaderInfo, open_reader, usable

__all__ = ["READERS", "AbstractVideoReader", "ReaderInfo", "open_reader", "usable"]
