"""Small videos whose luma is known: flat pictures, the same within a group but for a little."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from framefeed import Catalog
from framefeed.testing.samples import plane_samples, write_clip

GOP = 8
LENGTHS = (24, 20, 8, 33, 1, 16, 40, 12)


def level(file: int, frame: int) -> int:
    """Luma of a frame: files differ, groups of a file differ less, frames of a group least."""
    return 60 + 15 * (file % 4) + 9 * (frame // GOP % 3) + frame % 2


def write_flat(path: Path, file: int) -> Path:
    def paint(number: int) -> av.VideoFrame:
        frame = av.VideoFrame(64, 48, "yuv420p")
        y, u, v = (plane_samples(plane, np.dtype(np.uint8)) for plane in frame.planes)
        y[:], u[:], v[:] = level(file, number), 128, 128
        return frame

    options = {"x264-params": f"keyint={GOP}:min-keyint={GOP}:scenecut=0", "qp": "1"}
    return write_clip(
        path, frames=LENGTHS[file], width=64, height=48, gop=GOP, bframes=2, options=options, painter=paint
    )


@pytest.fixture(scope="package")
def catalog_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flat")
    files = [write_flat(folder / f"{number}.mp4", number) for number in range(len(LENGTHS))]
    Catalog.build(files, folder / "catalog.arrow", progress=False).close()
    return folder / "catalog.arrow"


@pytest.fixture
def catalog(catalog_path: Path) -> Catalog:
    return Catalog.open(catalog_path)
