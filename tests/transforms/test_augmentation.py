"""All frames of a clip alike, each sample its own, as a function of seed, epoch and sample."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from framefeed.transforms import VideoAugmentation, standard_video_augmentations

kornia: Any = pytest.importorskip("kornia.augmentation")

HEIGHT, WIDTH = 28, 48
LAST = torch.cuda.device_count() - 1
DEVICES = ["cpu", *([f"cuda:{LAST}"] if LAST >= 0 else [])]

Make = Callable[[], Any]

# With p below 1 where it is possible: gates are random numbers too.
MANY: list[Make] = [
    lambda: kornia.RandomHorizontalFlip(p=0.5),
    lambda: kornia.RandomVerticalFlip(p=0.5),
    lambda: kornia.RandomAffine(20.0, (0.1, 0.1), (0.8, 1.2), 5.0, p=0.7),
    lambda: kornia.RandomRotation(30.0, p=0.7),
    lambda: kornia.RandomPerspective(0.4, p=0.7),
    lambda: kornia.RandomCrop((20, 40), p=1.0),
    lambda: kornia.RandomResizedCrop((20, 40), p=1.0),
    lambda: kornia.RandomElasticTransform(p=0.7),
    lambda: kornia.RandomErasing(p=0.7),
    lambda: kornia.ColorJitter(0.3, 0.3, 0.3, 0.1, p=0.7),
    lambda: kornia.RandomGrayscale(p=0.5),
    lambda: kornia.RandomGaussianBlur((5, 5), (0.3, 2.0), p=0.7),
    lambda: kornia.RandomMotionBlur((3, 9), 40.0, 0.5, p=0.7),
    lambda: kornia.RandomGaussianNoise(0.0, 0.1, p=0.7),
    lambda: kornia.RandomPosterize(p=0.7),
    lambda: kornia.RandomRain(p=0.7, drop_height=(5, 9), drop_width=(-3, 3)),
    lambda: kornia.RandomPlasmaShadow(p=0.7),
    lambda: kornia.RandomChannelShuffle(p=0.7),
]


def clips(num: int = 6, frames: int = 3, height: int = HEIGHT, width: int = WIDTH, device: str = "cpu") -> Tensor:
    generator = torch.Generator().manual_seed(5)
    small = torch.rand(num, frames * 3, height // 4, width // 4, generator=generator)
    smooth = torch.nn.functional.interpolate(small, (height, width), mode="bilinear")
    return smooth.reshape(num, frames, 3, height, width).to(device)


def standard(**options: Any) -> VideoAugmentation:
    return VideoAugmentation(*standard_video_augmentations(), **options)


@pytest.mark.parametrize("make", MANY, ids=lambda make: type(make()).__name__)
def test_frames_alike_and_samples_apart(make: Make) -> None:
    batch = clips(5, 2)
    augment = VideoAugmentation(make(), seed=3)
    whole = augment(batch, epoch=0, samples=range(5))
    frames = torch.stack([augment(batch[:, [k]], epoch=0, samples=range(5))[:, 0] for k in range(2)], dim=1)
    torch.testing.assert_close(whole, frames, atol=1e-5, rtol=0)
    # The same picture everywhere: samples differ only by what was drawn.
    one = augment(batch[:1].expand_as(batch), epoch=0, samples=range(5))
    assert len({sample.numpy().tobytes() for sample in one}) > 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [*MANY, lambda: kornia.VideoSequential(*standard_video_augmentations())])
def test_only_seed_epoch_and_sample_matter(make: Make, device: str) -> None:
    batch = clips(4, 2, device=device)
    augment = VideoAugmentation(make(), seed=3)
    whole = augment(batch, epoch=2, samples=range(4))
    other = VideoAugmentation(make(), seed=3)
    backwards = other(batch.flip(0), epoch=2, samples=range(3, -1, -1))
    pairs = torch.cat([other(batch[k : k + 2], epoch=2, samples=[k, k + 1]) for k in (2, 0)])
    assert torch.equal(whole, backwards.flip(0))
    assert torch.equal(whole, pairs[[2, 3, 0, 1]])


def test_seed_epoch_and_sample_do_matter() -> None:
    batch = clips(1)
    augment, other = standard(seed=1), standard(seed=2)
    results = [
        augment(batch, epoch=0, samples=[0]),
        augment(batch, epoch=1, samples=[0]),
        augment(batch, epoch=0, samples=[1]),
        augment(batch, epoch=0, samples=[("a.mp4", 0)]),
        augment(batch, epoch=0, samples=[("a.mp4", 1)]),
        augment(batch, epoch=0, samples=[("b.mp4", 0)]),
        other(batch, epoch=0, samples=[0]),
    ]
    assert len({result.numpy().tobytes() for result in results}) == len(results)


def test_numbers_are_taken_from_anything_whole() -> None:
    batch = clips(2)
    augment = standard()
    expected = augment(batch, epoch=0, samples=[7, 9])
    assert torch.equal(expected, augment(batch, epoch=0, samples=torch.tensor([7, 9])))
    assert torch.equal(expected, augment(batch, epoch=0, samples=list(torch.tensor([7, 9]).numpy())))


def test_what_is_drawn_has_the_right_share() -> None:
    batch = clips(400, 1, 8, 8)
    flipped = VideoAugmentation(kornia.RandomHorizontalFlip(p=0.25))(batch, epoch=0, samples=range(400))
    share = sum(torch.equal(new, old.flip(-1)) for new, old in zip(flipped, batch, strict=True)) / 400
    assert 0.18 < share < 0.32


def test_augmentations_draw_on_their_own() -> None:
    batch = clips(60, 1, 8, 8)
    flips = VideoAugmentation(kornia.RandomHorizontalFlip(p=0.5), kornia.RandomVerticalFlip(p=0.5))
    result = flips(batch, epoch=0, samples=range(60))
    kinds = [(), (-1,), (-2,), (-1, -2)]
    found = {
        kind
        for new, old in zip(result, batch, strict=True)
        for kind in kinds
        if torch.equal(new, old.flip(kind) if kind else old)
    }
    assert found == set(kinds)


@pytest.mark.parametrize("device", DEVICES)
def test_generators_are_left_alone(device: str) -> None:
    batch = clips(device=device)
    torch.manual_seed(11)
    expected = torch.rand(3), torch.rand(3, device=device)
    torch.manual_seed(11)
    standard()(batch, epoch=0, samples=range(6))
    assert torch.equal(torch.rand(3), expected[0])
    standard()(batch, epoch=1, samples=range(6))
    assert torch.equal(torch.rand(3, device=device), expected[1]) or device == "cpu"


def test_generators_are_left_alone_after_an_error() -> None:
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="different output sizes"):
        VideoAugmentation(kornia.RandomCrop((8, 8), p=0.5))(clips(), epoch=0, samples=range(6))
    assert torch.equal(torch.get_rng_state(), state)


def test_global_seed_does_not_matter() -> None:
    results = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        results.append(standard()(clips(2), epoch=0, samples=[0, 1]))
    assert torch.equal(*results)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-4), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)])
def test_types_of_floats(dtype: torch.dtype, tolerance: float, device: str) -> None:
    batch = clips(device=device).to(dtype)
    expected = standard()(batch.float(), epoch=0, samples=range(6))
    result = standard()(batch, epoch=0, samples=range(6))
    assert (result.dtype, result.device) == (dtype, batch.device)
    torch.testing.assert_close(result.float(), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_bytes(device: str) -> None:
    batch = (clips(device=device) * 255).round().to(torch.uint8)
    expected = standard()(batch.float() / 255, epoch=0, samples=range(6))
    result = standard()(batch, epoch=0, samples=range(6))
    assert (result.dtype, result.device) == (torch.uint8, batch.device)
    assert torch.equal(result, (expected * 255).round().clamp(0, 255).to(torch.uint8))


def test_bytes_that_are_not_changed_stay_as_they_are() -> None:
    levels = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 1, 16, 16).expand(1, 2, 3, 16, 16)
    assert torch.equal(VideoAugmentation(kornia.RandomInvert(p=0.0))(levels, epoch=0, samples=[0]), levels)


def test_autocast_changes_nothing() -> None:
    expected = standard()(clips(), epoch=0, samples=range(6))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(standard()(clips(), epoch=0, samples=range(6)), expected)


def test_input_is_not_changed_and_not_shared() -> None:
    batch = clips()
    before = batch.clone()
    result = VideoAugmentation(kornia.RandomHorizontalFlip(p=0.0))(batch, epoch=0, samples=range(6))
    assert torch.equal(result, before)
    result.zero_()
    assert torch.equal(batch, before)


def test_gradients_are_not_recorded() -> None:
    batch = clips(2).requires_grad_()
    result = standard()(batch, epoch=0, samples=[0, 1])
    assert not result.requires_grad and result.grad_fn is None


def test_strided_batches() -> None:
    batch = clips()
    channels_last = batch.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    expected = standard()(batch, epoch=0, samples=range(6))
    torch.testing.assert_close(standard()(channels_last, epoch=0, samples=range(6)), expected, atol=1e-5, rtol=0)


def test_video_sequential_is_taken_apart() -> None:
    parts = standard_video_augmentations()
    expected = VideoAugmentation(*parts)(clips(), epoch=0, samples=range(6))
    whole = VideoAugmentation(kornia.VideoSequential(*parts, data_format="BCTHW"))
    assert torch.equal(whole(clips(), epoch=0, samples=range(6)), expected)


def test_normalize_as_the_last() -> None:
    last = kornia.Normalize(mean=0.5, std=0.25)
    result = VideoAugmentation(last)(clips(), epoch=0, samples=range(6))
    torch.testing.assert_close(result, (clips() - 0.5) / 0.25)


def test_pickled() -> None:
    augment = standard(seed=4)
    copy = pickle.loads(pickle.dumps(augment))
    assert torch.equal(copy(clips(), epoch=0, samples=range(6)), augment(clips(), epoch=0, samples=range(6)))


def test_repr() -> None:
    expected = "VideoAugmentation(RandomHorizontalFlip, RandomAffine, ColorJitter, RandomGaussianBlur, seed=7)"
    assert repr(standard(seed=7)) == expected


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (torch.rand(2, 3, 8, 8), r"'batch' has the shape \(2, 3, 8, 8\)"),
        (torch.rand(2, 4, 8, 8, 3), "fchw"),
        (torch.rand(2, 0, 3, 8, 8), "is empty"),
        (torch.rand(3, 1, 3, 8, 8), "has 3 clips, but there are 2 samples"),
        (torch.rand(2, 1, 3, 8, 8) * 255, r"values up to 25.*normalized=True"),
    ],
)
def test_batches_that_do_not_fit(batch: Tensor, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        standard()(batch, epoch=0, samples=[0, 1])


def test_arguments_that_are_not_possible() -> None:
    augment = standard()
    with pytest.raises(TypeError, match="int64; expected"):
        augment(torch.zeros(1, 1, 3, 8, 8, dtype=torch.int64), epoch=0, samples=[0])
    with pytest.raises(ValueError, match="pass samples="):
        augment(clips(), epoch=0)
    with pytest.raises(TypeError, match="a sample must be a number or"):
        augment(clips(1), epoch=0, samples=[(3, "a.mp4")])
    with pytest.raises(ValueError, match="a sample has to be in"):
        augment(clips(1), epoch=0, samples=[-1])
    with pytest.raises(ValueError, match="epoch"):
        augment(clips(1), epoch=-1, samples=[0])
    with pytest.raises(ValueError, match="seed has to be in"):
        standard(seed=-1)
    with pytest.raises(ValueError, match="at least one"):
        VideoAugmentation()


def test_augmentations_that_are_not_possible() -> None:
    with pytest.raises(TypeError, match="RandomMixUpV2 is not a Kornia"):
        VideoAugmentation(kornia.RandomMixUpV2())
    with pytest.raises(TypeError, match="RandomRotation3D is not a Kornia"):
        VideoAugmentation(kornia.RandomRotation3D(5.0))
    with pytest.raises(TypeError, match="str is not a Kornia"):
        VideoAugmentation("flip")
    with pytest.raises(ValueError, match="same_on_batch"):
        VideoAugmentation(kornia.RandomHorizontalFlip(same_on_batch=True))
    with pytest.raises(ValueError, match="same_on_frame"):
        VideoAugmentation(kornia.VideoSequential(kornia.RandomInvert(), same_on_frame=False))
    with pytest.raises(ValueError, match="random_apply"):
        VideoAugmentation(kornia.VideoSequential(kornia.RandomInvert(), kornia.RandomHue(), random_apply=1))


def test_augmentations_that_treat_frames_apart_are_refused() -> None:
    base: Any = kornia.RandomInvert

    class FirstFrameOnly(base):  # type: ignore[misc]
        def apply_transform(self, input: Tensor, *_: Any, **__: Any) -> Tensor:
            return torch.cat([1 - input[:1], input[1:]])

    class DrawsLate(base):  # type: ignore[misc]
        def apply_transform(self, input: Tensor, *_: Any, **__: Any) -> Tensor:
            return input + torch.rand(1)

    for made in (FirstFrameOnly(p=0.01), DrawsLate(p=0.01)):
        with pytest.raises(ValueError, match=f"{type(made).__name__} does not treat all frames"):
            VideoAugmentation(made)(clips(), epoch=0, samples=range(6))
