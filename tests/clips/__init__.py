"""The zoo: small clips, each named for its oddity, with the truth beside it.

`KINDS` lists them, `make` writes one, `linear_decode` is what every other way of decoding is compared with.
"""

from pathlib import Path

from clips import containers, edits, h264, hevc, looks, mpeg, streams, times, vpx_av1
from clips.base import ClipKind, linear_decode, luma, painted_numbers

__all__ = ["KINDS", "ClipKind", "linear_decode", "luma", "make", "painted_numbers"]

_FAMILIES = (h264, hevc, vpx_av1, mpeg, containers, edits, streams, looks, times)
KINDS: dict[str, ClipKind] = {kind.name: kind for family in _FAMILIES for kind in family.KINDS}

_made: dict[tuple[str, Path], Path] = {}


def use(name: str, path: Path) -> None:
    """Has ``make`` return a clip that an earlier process wrote."""
    _made[name, path.parent.resolve()] = path


def make(name: str, folder: Path) -> Path:
    """Writes the clip into ``folder``, once a process and folder."""
    key = (name, folder.resolve())
    if key not in _made or not _made[key].exists():
        folder.mkdir(parents=True, exist_ok=True)
        _made[key] = KINDS[name].make(folder)
    return _made[key]
