"""Reading in order: every frame is decoded once, before it is handed out, and never too many are held."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from framefeed.plan.rounds import rounds


@settings(max_examples=300, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    budget=st.integers(0, 80),
    least=st.integers(1, 20),
    threads=st.integers(1, 4),
)
def test_every_frame_once_and_within_the_budget(lengths: list[int], budget: int, least: int, threads: int) -> None:
    groups = np.repeat(np.arange(len(lengths)) * 100, lengths)
    decoded: set[int] = set()
    handed_out = 0
    for step in rounds(groups, budget=budget, least=least, num_threads=threads):
        frames = step.frames.tolist()
        assert not decoded & set(frames)
        decoded |= set(frames)
        assert len(decoded) - handed_out <= max(budget, least, 1)
        assert step.deliver > 0
        assert set(range(handed_out, handed_out + step.deliver)) <= decoded
        handed_out += step.deliver
        # Within a group frames are decoded in order, so that its decoder only ever goes forward.
        for group in np.unique(groups):
            members = np.flatnonzero(groups == group)
            done = [frame in decoded for frame in members.tolist()]
            assert done == sorted(done, reverse=True)
    assert handed_out == len(groups)


def test_two_long_groups_are_under_way_at_once() -> None:
    groups = np.repeat([0, 250, 500], 250)
    steps = list(rounds(groups, budget=170, least=48, num_threads=2))
    both = [step for step in steps if len(np.unique(groups[step.frames])) == 2]
    assert sum(len(step.frames) for step in both) > 250
    assert all(step.long_groups for step in both)


def test_short_groups_are_read_several_at_a_time() -> None:
    groups = np.repeat(np.arange(0, 300, 30), 30)
    steps = list(rounds(groups, budget=110, least=48, num_threads=2))
    assert [len(np.unique(groups[step.frames])) for step in steps] == [2, 2, 2, 2, 2]
