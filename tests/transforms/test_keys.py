"""Several tensors of a sample: the same changes, in proportion to their sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from framefeed.transforms import SampleLabel, SampleLabels, VideoAugmentation, sample_label

kornia: Any = pytest.importorskip("kornia.augmentation")

NUM = 8


def batch() -> dict[str, Any]:
    """A large smooth clip, and the same one at half the size with fewer frames."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(NUM * 2, 3, 6, 8, generator=generator)
    large = interpolate(coarse, (96, 128), mode="bicubic").clamp(0, 1).reshape(NUM, 2, 3, 96, 128)
    return {
        "large": large,
        "small": half(large)[:, :1],
        "labels": [SampleLabel("a.mp4", number) for number in range(NUM)],
    }


def half(clips: Tensor) -> Tensor:
    smaller = interpolate(clips.flatten(0, 1), scale_factor=0.5, mode="area")
    return smaller.reshape(*clips.shape[:2], *smaller.shape[1:])


@pytest.mark.parametrize(
    "make",
    [
        lambda: kornia.RandomHorizontalFlip(p=0.5),
        lambda: kornia.RandomAffine(25.0, (0.2, 0.2), (0.8, 1.2), 8.0, p=0.8),
        lambda: kornia.RandomRotation(30.0, p=0.8),
        lambda: kornia.RandomPerspective(0.4, p=0.8),
        lambda: kornia.RandomShear(15.0, p=0.8),
        lambda: kornia.RandomTranslate((-0.2, 0.2), (-0.2, 0.2), p=0.8),
        lambda: kornia.ColorJitter(0.3, 0.3, 0.3, 0.1, p=0.8),
    ],
    ids=lambda make: type(make()).__name__,
)
def test_sizes_in_proportion(make: Any) -> None:
    given = batch()
    result = VideoAugmentation(make(), seed=2)(given, epoch=0)
    difference = (half(result["large"])[:, :1] - result["small"]).abs()[..., 2:-2, 2:-2]
    # Half a pixel of the smaller one, along edges; other changes would differ by a few tenths.
    assert difference.mean() < 0.012
    changed = (result["small"] - given["small"]).abs().mean((1, 2, 3, 4))
    assert (changed > 0.02).sum() > 1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: kornia.RandomCrop((20, 20)), r"RandomCrop does not change .*128x96.*64x48.*random_crop=True"),
        (lambda: kornia.RandomResizedCrop((20, 20)), "RandomResizedCrop does not change"),
        (lambda: kornia.RandomElasticTransform(p=1.0), "RandomElasticTransform does not change"),
        (lambda: kornia.RandomGaussianNoise(p=1.0), r"RandomGaussianNoise does not change.*\"small\": \"geometric\""),
    ],
)
def test_sizes_that_cannot_be_treated_alike(make: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        VideoAugmentation(make())(batch(), epoch=0)


def test_sizes_out_of_proportion() -> None:
    given = {**batch(), "small": torch.rand(NUM, 1, 3, 48, 48)}
    with pytest.raises(ValueError, match="aspect ratios differ"):
        VideoAugmentation(kornia.RandomRotation(10.0))(given, epoch=0)
    flipped = VideoAugmentation(kornia.RandomHorizontalFlip(p=1.0))(given, epoch=0)
    assert torch.equal(flipped["small"], given["small"].flip(-1))


def test_sizes_that_were_rounded_are_in_proportion() -> None:
    given = {"large": torch.rand(1, 1, 3, 101, 180), "small": torch.rand(1, 1, 3, 34, 60)}
    VideoAugmentation(kornia.RandomRotation(10.0))(given, epoch=0, samples=[0])


def test_crops_of_one_size_correspond() -> None:
    clips = batch()["large"]
    given = {"input": clips, "target": clips[:, :1]}
    result = VideoAugmentation(kornia.RandomCrop((20, 30), p=1.0))(given, epoch=0, samples=range(NUM))
    assert result["input"].shape == (NUM, 2, 3, 20, 30)
    assert torch.equal(result["input"][:, :1], result["target"])


def test_only_the_named_are_changed() -> None:
    given = batch()
    result = VideoAugmentation(kornia.RandomInvert(p=1.0), keys="large")(given, epoch=0)
    assert list(result) == list(given)
    assert result["small"] is given["small"] and result["labels"] is given["labels"]
    torch.testing.assert_close(result["large"], 1 - given["large"])


def test_geometric_only() -> None:
    given = batch()
    augment = VideoAugmentation(
        kornia.RandomInvert(p=1.0),
        kornia.RandomHorizontalFlip(p=1.0),
        kornia.RandomGaussianNoise(p=1.0),
        keys={"large": "all", "small": "geometric"},
    )
    result = augment(given, epoch=0)
    assert torch.equal(result["small"], given["small"].flip(-1))
    assert (result["large"] - (1 - given["large"]).flip(-1)).std() > 0.5


def test_a_tensor_alone_gets_the_same_as_in_a_dict() -> None:
    given = batch()
    augment = VideoAugmentation(kornia.RandomAffine(20.0, p=1.0), keys=["small", "large"])
    alone = augment(given["large"], epoch=3, samples=given["labels"])
    assert torch.equal(augment(given, epoch=3)["large"], alone)


def test_samples_come_from_labels() -> None:
    given = batch()
    augment = VideoAugmentation(kornia.RandomAffine(20.0, p=1.0), keys="small")
    expected = augment(given, epoch=0)["small"]
    own = {**given, "labels": [label._replace(label="a class") for label in given["labels"]]}
    assert torch.equal(augment(own, epoch=0)["small"], expected)
    pairs = [("a.mp4", number) for number in range(NUM)]
    assert torch.equal(augment(given, epoch=0, samples=pairs)["small"], expected)


@pytest.mark.parametrize("labels", [None, list(range(NUM)), [("dog", 1)] * NUM, torch.arange(NUM)])
def test_other_labels_are_no_samples(labels: Any) -> None:
    with pytest.raises(ValueError, match="get_label=sample_label"):
        VideoAugmentation(kornia.RandomInvert(), keys="small")({**batch(), "labels": labels}, epoch=0)


def test_keys_that_are_not_possible() -> None:
    with pytest.raises(ValueError, match="has no tensor 'depth'; it has 'large', 'small', 'labels'"):
        VideoAugmentation(kornia.RandomInvert(), keys=["large", "depth"])(batch(), epoch=0)
    with pytest.raises(ValueError, match="keys is empty"):
        VideoAugmentation(kornia.RandomInvert(), keys=[])
    wrong: Any = {"large": "colour"}
    with pytest.raises(ValueError, match='"all" or "geometric", got \'colour\''):
        VideoAugmentation(kornia.RandomInvert(), keys=wrong)


def test_labels() -> None:
    assert sample_label("v/a.mp4", 3, {}) == ("v/a.mp4", 3, None)
    own = SampleLabels(lambda filename, frame, changes: f"{filename}:{frame}", root="/data")
    assert own("/data/v/a.mp4", 3, {}) == SampleLabel("v/a.mp4", 3, "/data/v/a.mp4:3")
    assert SampleLabels()("a.mp4", 3, {}) == sample_label("a.mp4", 3, {})
