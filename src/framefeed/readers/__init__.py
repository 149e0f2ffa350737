"""Other libraries behind one small interface, for comparison and for their users.

Importing this imports none of them: a library is loaded when its reader is made.
"""

from framefeed.readers.base import AbstractVideoReader
from framefeed.readers.registry import READERS, ReaderInfo, open_reader, usable

__all__ = ["READERS", "AbstractVideoReader", "ReaderInfo", "open_reader", "usable"]
