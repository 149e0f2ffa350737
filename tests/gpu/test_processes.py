"""GPUs and worker processes: what cannot work says so with the remedy, what can works."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.utils.dlpack

import clips
from framefeed import VideoDecoder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def _run(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ, check=False)


def test_a_forked_child_gets_the_remedy(clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    done = _run(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        from framefeed import MissingBackend, VideoDataset, VideoDecoder, VideoLoader
        decoder = VideoDecoder(sys.argv[1], device="cuda")
        dataset = VideoDataset([sys.argv[1]], device="cuda")
        loader = VideoLoader(dataset, 4)
        decoder[0]
        next(iter(loader))
        if os.fork() == 0:
            for what in (
                lambda: VideoDecoder(sys.argv[1], device="cuda"),
                lambda: decoder[0],
                lambda: dataset[0],
                lambda: next(iter(loader)),
            ):
                try:
                    what()
                    print("no error")
                except MissingBackend as error:
                    print("remedy" if "spawn" in str(error) else error)
            print(VideoDecoder(sys.argv[1])[0].shape)
            sys.stdout.flush()
            os._exit(0)
        os.wait()
        print("parent", decoder[3].device.type)
        """,
        path,
    )
    lines = done.stdout.splitlines()
    assert lines[:4] == ["remedy"] * 4, done.stdout + done.stderr
    assert lines[4].startswith("torch.Size") and lines[5] == "parent cuda"


def _decode(path: str) -> torch.Tensor:
    return VideoDecoder(path, device="cuda").get_all_frames().data.cpu()


def test_a_spawned_worker_decodes(clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    here = _decode(str(path))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert torch.equal(pool.apply(_decode, (str(path),)), here)


def test_a_data_loader_with_spawned_workers(clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    done = _run(
        """
        import sys, torch
        from framefeed import ProcessDesc, VideoDataset
        def main():
            dataset = VideoDataset([sys.argv[1]], processing={"x": ProcessDesc(type="byte")}, device="cuda")
            loader = torch.utils.data.DataLoader(dataset, 4, num_workers=2, multiprocessing_context="spawn")
            count = 0
            for batch in loader:
                for frame in batch["x"]:
                    assert frame.device.type == "cuda" and torch.equal(frame, dataset[count]["x"])
                    count += 1
            assert count == len(dataset)
            print("equal", count)
        if __name__ == "__main__":
            main()
        """,
        path,
    )
    assert done.stdout.startswith("equal"), done.stdout + done.stderr


def test_dlpack_shares_the_memory(clip_folder: Path) -> None:
    frames = VideoDecoder(clips.make("h264_b_pyramid", clip_folder), device="cuda").get_frames_at([0, 5]).data
    shared = torch.utils.dlpack.from_dlpack(frames)
    assert shared.data_ptr() == frames.data_ptr() and shared.device == frames.device
