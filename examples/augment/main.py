"""Reads clips, augments them on the device they are on, and shows that a sample's changes are its own."""

from __future__ import annotations

import argparse
import tempfile

from framefeed import ProcessDesc, VideoDataset, VideoLoader
from framefeed.testing.samples import write_samples
from framefeed.transforms import VideoAugmentation, sample_label, standard_video_augmentations


def main() -> None:
    """Two epochs of augmented batches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or auto")
    parser.add_argument("--batches", type=int, default=2, help="batches of each epoch")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_samples(folder)
        desc = ProcessDesc(scale_width=80, scale_height=45, normalized=True)
        dataset = VideoDataset(
            folder,
            sequence_length=4,
            processing={"input": desc},
            get_label=sample_label,
            device=args.device,
            fallback="cpu",  # one of the samples is AV1, which some GPUs do not decode
        )
        loader = VideoLoader(dataset, batch_size=4, shuffle=True, memory_budget="64MB")
        augment = VideoAugmentation(*standard_video_augmentations(), seed=0)
        for _ in range(2):
            for _, batch in zip(range(args.batches), loader, strict=False):
                clips = augment(batch, epoch=loader.epoch)["input"]
                changed = (clips - batch["input"]).abs().mean().item()
                print(f"epoch {loader.epoch}: {tuple(clips.shape)} on {clips.device}, changed by {changed:.3f}")


if __name__ == "__main__":
    main()
