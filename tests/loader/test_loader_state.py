"""The state of a loader: stop anywhere, go on in another process, and have what an uninterrupted run has."""

from __future__ import annotations

import builtins
import errno
import json
import os
import random
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler

from framefeed import StateError, VideoLoader
from framefeed.loader.state import read_state
from helpers import state_help as help
from waiting import soon

State = dict[str, Any]


@pytest.fixture(scope="module")
def paths(clip_folder: Path) -> list[str]:
    return help.few_files(clip_folder)


def _json(state: State) -> State:
    found: State = json.loads(json.dumps(state))
    return found


def _stops(loader: VideoLoader) -> tuple[list[list[str]], list[State]]:
    """An epoch, and the state before it and after each of its batches."""
    iterator = iter(loader)
    found, states = [], []
    for batch in iterator:
        found.append(help.rows(batch))
        states.append(_json(loader.state_dict()))
    return found, states


# --- resuming -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*help.ORDERS, *help.SAMPLERS])
def test_every_stop_is_resumed_by_a_new_process(kind: str, paths: list[str]) -> None:
    loader = help.make_loader(kind, paths)
    first = help.epoch_rows(loader)
    second, states = _stops(loader)
    third = help.epoch_rows(loader)
    assert len(second) == len(loader) == len(states)
    assert kind == "sequential" or first != second != third
    assert all(len(json.dumps(state)) < (700 if kind not in help.OWN_GENERATOR else 60_000) for state in states)
    # The last state lies after the last batch, but the end has not been asked for: see below.
    resumed = help.run(help.resume, kind=kind, paths=paths, states=states[:-1], passes=1)
    assert [rest for (rest,) in resumed] == [second[position:] for position in range(1, len(second))]
    resumed = help.run(help.resume, kind=kind, paths=paths, states=states[2:3], passes=2)
    assert resumed == [[second[3:], third]]


@pytest.mark.parametrize("order", help.ORDERS)
def test_what_is_resumed_is_what_indexing_gives(order: str, paths: list[str]) -> None:
    loader = help.make_loader(order, paths)
    loader.set_epoch(3)
    expected = help.truth(help.make_dataset(paths), epoch=3)
    assert sorted(help.flat(help.epoch_rows(loader))) == sorted(expected)
    found, states = _stops(loader)
    rest, _ = help.run(help.resume, kind=order, paths=paths, states=[states[3]], passes=2)[0]
    expected = help.truth(help.make_dataset(paths), epoch=4)
    assert sorted(help.flat(found[:4]) + help.flat(rest)) == sorted(expected)


@pytest.mark.parametrize("kind", ["shuffle", "random", "batch", "set_epoch"])
def test_the_end_of_an_epoch_is_the_beginning_of_the_next(kind: str, paths: list[str]) -> None:
    loader = help.make_loader(kind, paths)
    help.epoch_rows(loader)
    state = _json(loader.state_dict())
    assert loader.epoch == 0
    expected = [help.epoch_rows(loader), help.epoch_rows(loader)]
    assert help.run(help.resume, kind=kind, paths=paths, states=[state], passes=2) == [expected]
    again = help.make_loader(kind, paths)
    again.load_state_dict(state)
    assert again.epoch == 1


@pytest.mark.parametrize("kind", help.OWN_GENERATOR)
def test_the_end_of_an_epoch_keeps_the_generator(kind: str, paths: list[str]) -> None:
    loader = help.make_loader(kind, paths)
    first = help.epoch_rows(loader)
    state = _json(loader.state_dict())
    expected = help.epoch_rows(loader)
    assert expected != first
    assert help.run(help.resume, kind=kind, paths=paths, states=[state], passes=1) == [[expected]]


@pytest.mark.parametrize("kind", ["shuffle", "random"])
def test_the_last_batch_is_the_end_of_the_epoch(kind: str, paths: list[str]) -> None:
    loader = help.make_loader(kind, paths)
    _, states = _stops(loader)
    again = help.make_loader(kind, paths)
    again.load_state_dict(states[-1])
    assert help.epoch_rows(again) == help.epoch_rows(loader)


def test_after_the_last_batch_nothing_is_repeated(paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths)
    _, states = _stops(loader)
    expected = help.epoch_rows(loader)
    again = help.make_loader("shuffle", paths)
    again.load_state_dict(states[-1])
    assert next(found for found in iter(lambda: help.epoch_rows(again), None) if found) == expected


@pytest.mark.parametrize("kind", ["shuffle", "random", "weighted_generator", "batch_generator", "set_epoch"])
def test_state_before_the_first_iterator(kind: str, paths: list[str]) -> None:
    loader = help.make_loader(kind, paths)
    state = _json(loader.state_dict())
    expected = [help.epoch_rows(loader), help.epoch_rows(loader)]
    again = help.make_loader(kind, paths)
    again.load_state_dict(state)
    assert [help.epoch_rows(again), help.epoch_rows(again)] == expected


@pytest.mark.parametrize("kind", [*help.ORDERS, "random", "weighted", "batch", "set_epoch"])
def test_state_before_the_first_batch(kind: str, paths: list[str]) -> None:
    _check_state_before_the_first_batch(kind, paths)


@pytest.mark.parametrize("kind", help.OWN_GENERATOR)
def test_state_before_the_first_batch_has_the_generator(kind: str, paths: list[str], one_at_a_time: None) -> None:
    _check_state_before_the_first_batch(kind, paths)


def _check_state_before_the_first_batch(kind: str, paths: list[str]) -> None:
    loader = help.make_loader(kind, paths)
    help.epoch_rows(loader)
    iterator = iter(loader)
    state = _json(loader.state_dict())
    assert (state["epoch"], state["batch"]) == (1, 0)
    expected = help.epoch_rows(iterator)
    again = help.make_loader(kind, paths)
    again.load_state_dict(state)
    assert help.epoch_rows(again) == expected


@pytest.fixture
def one_at_a_time() -> Iterator[None]:
    """Threads take turns only where one waits."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    yield
    sys.setswitchinterval(interval)


def test_only_batches_that_were_handed_out_count(paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths, buffer_length=6)
    iterator = iter(loader)
    done = [help.rows(next(iterator)), help.rows(next(iterator))]
    board = iterator._feed._board
    assert soon(lambda: len(board.open) == 6 and not any(batch.remaining for batch in board.open))
    state = _json(loader.state_dict())
    assert state["batch"] == 2
    rest = help.epoch_rows(iterator)
    again = help.make_loader("shuffle", paths)
    again.load_state_dict(state)
    assert help.epoch_rows(again) == rest
    assert sorted(help.flat(done + rest)) == sorted(help.truth(loader.dataset))


def test_a_resumed_run_can_be_stopped_and_resumed(paths: list[str]) -> None:
    expected = help.epoch_rows(help.make_loader("buffered:16", paths))
    state = help.make_loader("buffered:16", paths).state_dict()
    found = []
    for _ in expected:  # each loader does one batch only
        loader = help.make_loader("buffered:16", paths)
        loader.load_state_dict(_json(state))
        iterator = iter(loader)
        found.append(help.rows(next(iterator)))
        iterator.close()
        state = loader.state_dict()
    assert found == expected


def test_position_of_a_closed_iterator_stays(paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths)
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    assert list(iterator) == []
    state = loader.state_dict()
    assert (state["epoch"], state["batch"], state["finished"]) == (0, 1, False)


def test_loading_while_an_iterator_is_alive(paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths)
    iterator = iter(loader)
    first = help.rows(next(iterator))
    state = loader.state_dict()
    second = help.rows(next(iterator))
    loader.load_state_dict(state)
    assert _json(loader.state_dict()) == _json(state)
    assert help.rows(next(iter(loader))) == second
    rest = help.epoch_rows(iterator)  # the old one goes on by itself
    assert sorted(first + second + help.flat(rest)) == sorted(help.truth(loader.dataset))


def test_state_after_skipped_batches(paths: list[str], tmp_path: Path) -> None:
    """Whole batches are left out, and count."""
    copies = _copies(paths, tmp_path)
    loader = help.make_loader("sequential", copies, batch_size=2, on_error="skip")
    again = help.make_loader("sequential", copies, batch_size=2, on_error="skip")
    Path(copies[1]).unlink()  # samples 4..10 of 36
    iterator = iter(loader)
    seen, states = [], []
    for batch in iterator:
        seen.append(help.rows(batch))
        states.append(_json(loader.state_dict()))
    assert [state["batch"] for state in states] == [1, 2, *range(6, 19)]
    assert len(loader.skipped) == 7
    for position, state in enumerate(states[:-1], start=1):
        again.load_state_dict(state)
        assert help.epoch_rows(again) == seen[position:]


def test_state_after_a_batch_that_failed(paths: list[str], tmp_path: Path) -> None:
    copies = _copies(paths, tmp_path)
    loader = help.make_loader("sequential", copies, batch_size=2)
    again = help.make_loader("sequential", copies, batch_size=2)
    Path(copies[1]).unlink()
    iterator = iter(loader)
    next(iterator), next(iterator)
    with pytest.raises(OSError, match=r"001\.mp4"):
        next(iterator)
    again.load_state_dict(_json(loader.state_dict()))
    assert iterator.position == 3
    goes_on = iter(again)
    with pytest.raises(OSError, match=r"001\.mp4"):
        next(goes_on)
    assert goes_on.position == 4


def _copies(paths: list[str], folder: Path) -> list[str]:
    copies = [folder / Path(path).name for path in paths]
    for path, copy in zip(paths, copies, strict=True):
        copy.write_bytes(Path(path).read_bytes())
    return [str(copy) for copy in copies]


# --- samplers and torch's generator ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random", "weighted", "batch"])
def test_samplers_without_a_generator_depend_on_seed_and_epoch(kind: str, paths: list[str]) -> None:
    torch.manual_seed(1)
    expected = [help.epoch_rows(help.make_loader(kind, paths)) for _ in range(2)]
    torch.manual_seed(2)
    assert [help.epoch_rows(help.make_loader(kind, paths))] * 2 == expected
    assert help.epoch_rows(help.make_loader(kind, paths, seed=8)) != expected[0]


def test_samplers_leave_torchs_generator_alone(paths: list[str]) -> None:
    torch.manual_seed(4)
    expected = torch.rand(5)
    torch.manual_seed(4)
    help.epoch_rows(help.make_loader("random", paths))
    assert torch.equal(torch.rand(5), expected)


class _Waiting(help.EpochSampler):
    """Draws slowly; meanwhile the consumer draws too."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.inside = False

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.count).tolist()
        self.inside = True
        time.sleep(0.2)
        yield from order


def test_the_consumer_may_draw_while_the_sampler_does(paths: list[str]) -> None:
    torch.manual_seed(4)
    expected = torch.rand(5)
    sampler = _Waiting(36)
    loader = help.make_loader("sequential", paths, order=None, sampler=sampler)
    torch.manual_seed(4)
    iterator = iter(loader)
    assert soon(lambda: sampler.inside)
    found = torch.rand(5)
    iterator.close()
    assert torch.equal(found, expected)


class _SlowlyTold(help.EpochSampler):
    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        time.sleep(0.1)


def test_two_iterators_with_one_sampler_have_their_own_epochs(paths: list[str]) -> None:
    expected = [help.epoch_rows(help.make_loader("set_epoch", paths)) for _ in range(1)]
    loader = help.make_loader("sequential", paths, order=None, sampler=_SlowlyTold(36))
    iterators = [iter(loader), iter(loader)]
    found = [help.flat(help.epoch_rows(iterator)) for iterator in iterators]
    assert found[0] == help.flat(expected[0])
    assert [row.split()[0] for row in found[0]] != [row.split()[0] for row in found[1]]


# --- files ----------------------------------------------------------------------------------------------------------


def test_save_and_load(paths: list[str], tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    loader = help.make_loader("chunked:4", paths)
    iterator = iter(loader)
    next(iterator)
    loader.save_state(path)
    next(iterator)
    loader.save_state(str(path))
    rest = help.epoch_rows(iterator)
    again = help.make_loader("chunked:4", paths)
    again.load_state(str(path))
    assert help.epoch_rows(again) == rest
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]


def test_relative_path(paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loader = help.make_loader("shuffle", paths)
    loader.save_state("state")
    loader.load_state("state")
    with pytest.raises(StateError, match=r"^state: .*different seed"):
        help.make_loader("shuffle", paths, seed=1).load_state("state")


def test_killed_at_any_moment(paths: list[str], tmp_path: Path) -> None:
    """Logged, then saved: after a kill at most the one batch that was not saved is repeated, and none is missing."""
    path = tmp_path / "state.json"
    epochs, rng = 6, random.Random(0)
    expected = {}
    loader = help.make_loader("shuffle", paths)
    for epoch in range(epochs):
        for position, batch in enumerate(loader):
            expected[epoch, position] = help.rows(batch)
    logged: list[list[Any]] = []
    kills = 0
    while True:
        child = help.start_quick(help.save_after_each_batch, paths=paths, path=str(path), epochs=epochs)
        if kills < 8:
            child.until_printed(rng.randrange(1, 7))
            time.sleep(rng.random() * 0.004)
            child.kill()
            kills += 1
        else:
            assert child.wait() == 0, child.errors
        lines = child.lines
        if logged and lines:
            assert tuple(lines[0][:2]) in (_after(logged[-1], expected), tuple(logged[-1][:2]))
            if lines[0][:2] == logged[-1][:2]:
                logged.pop()
        logged += lines
        if child.code == 0:
            break
        if path.exists():
            saved, last = read_state(path), logged[-1]
            ahead = (saved["epoch"] - last[0]) * len(loader) + saved["batch"] - last[1]
            assert ahead in (0, 1), "the file has the state before or after the last batch"
    assert kills == 8
    assert [(line[0], line[1]) for line in logged] == sorted(expected)
    assert all(expected[line[0], line[1]] == line[2] for line in logged)


def _after(line: list[Any], expected: dict[tuple[int, int], list[str]]) -> tuple[int, int]:
    following = (line[0], line[1] + 1)
    return following if following in expected else (line[0] + 1, 0)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_full_disk(on_error: str, paths: list[str], tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    other = help.make_loader("shuffle", paths)
    next(iter(other))
    other.save_state(path)
    before = path.read_bytes()
    found = help.run(help.save_to_full_disk, paths=paths, path=str(path), on_error=on_error)
    (told,) = [found["error"]] if on_error == "raise" else found["warnings"]
    assert str(path) in told and os.strerror(errno.EFBIG) in told
    assert (found["error"] is None) == (on_error == "skip")
    assert bool(found["warnings"]) == (on_error == "skip")
    assert found["rows"] == help.epoch_rows(help.make_loader("shuffle", paths))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]
    help.make_loader("shuffle", paths).load_state(path)


@pytest.mark.parametrize("failing", ["fsync", "replace", "open"])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_any_step_of_saving_may_fail(
    failing: str, on_error: str, paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    loader = help.make_loader("shuffle", paths, on_error=on_error)
    loader.save_state(path)
    before = path.read_bytes()

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(builtins if failing == "open" else os, failing, fail)
        if on_error == "raise":
            with pytest.raises(StateError, match=r"state\.json: .*No space left on device"):
                loader.save_state(path)
        else:
            with pytest.warns(UserWarning, match=r"state\.json: .*No space left on device"):
                loader.save_state(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]
    loader.load_state(path)


@pytest.mark.parametrize("name", ["no/such/folder/state.json", "folder"])
def test_places_that_cannot_be_written(name: str, paths: list[str], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / name
    with pytest.raises(StateError, match=f"{path}: cannot save the loader state"):
        help.make_loader("shuffle", paths).save_state(path)
    with pytest.warns(UserWarning, match=f"{path}: cannot save the loader state"):
        help.make_loader("shuffle", paths, on_error="skip").save_state(path)
    with pytest.raises(StateError, match=f"{path}: cannot read the loader state"):
        help.make_loader("shuffle", paths).load_state(path)
    assert [each.name for each in tmp_path.rglob("*")] == ["folder"]


@pytest.mark.parametrize("what", ["batch_size", "epoch", "drop_last"])
def test_numpys_numbers_can_be_saved(what: str, paths: list[str], tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": np.int64(4)} if what == "batch_size" else {}
    if what == "drop_last":
        options["drop_last"] = np.True_
    loader = help.make_loader("shuffle", paths, **options)
    if what == "epoch":
        loader.set_epoch(np.int64(2))  # type: ignore[arg-type]
    loader.save_state(tmp_path / "state.json")
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]
    loader.load_state(tmp_path / "state.json")


def test_the_file_has_ordinary_permissions(paths: list[str], tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("")
    help.make_loader("shuffle", paths).save_state(tmp_path / "state.json")
    assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


# --- states of others -----------------------------------------------------------------------------------------------


def _loader(paths: list[str], **options: Any) -> VideoLoader:
    return help.make_loader(options.pop("kind", "shuffle"), paths, **options)


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"seed": 8}, "seed"),
        ({"kind": "sequential"}, "order"),
        ({"kind": "buffered:16"}, "order"),
        ({"kind": "random"}, "sampler"),
        ({"batch_size": 3}, "batch size"),
        ({"drop_last": True}, "drop_last"),
    ],
    ids=str,
)
def test_states_of_other_loaders(options: dict[str, Any], difference: str, paths: list[str], tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    loader = help.make_loader("shuffle", paths)
    iterator = iter(loader)
    next(iterator)
    loader.save_state(path)
    other = _loader(paths, **options)
    expected = other.state_dict()
    with pytest.raises(StateError) as caught:
        other.load_state(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert difference in caught.value.reason
    for another in {"seed", "order", "batch size", "drop_last", "number of samples", "files"} - {difference}:
        assert another not in caught.value.reason or difference == "sampler"
    with pytest.raises(StateError, match=difference):
        other.load_state_dict(loader.state_dict())
    assert other.state_dict() == expected, "a state that is refused changes nothing"


def test_states_of_another_chunk_size(paths: list[str]) -> None:
    state = help.make_loader("chunked:4", paths).state_dict()
    with pytest.raises(StateError, match="order"):
        VideoLoader(help.make_dataset(paths), 4, order="chunked:5", drop_last=False).load_state_dict(state)


def test_states_of_other_datasets(paths: list[str], tmp_path: Path) -> None:
    state = help.make_loader("shuffle", paths).state_dict()
    with pytest.raises(StateError, match=r"number of samples.*files"):
        help.make_loader("shuffle", paths[:-1]).load_state_dict(state)
    with pytest.raises(StateError, match="files, file lengths or file order"):
        help.make_loader("shuffle", [*paths[1:], paths[0]]).load_state_dict(state)
    swapped = [paths[0], paths[1], paths[4], paths[3], paths[2]]  # of equal lengths
    with pytest.raises(StateError, match="files, file lengths or file order"):
        help.make_loader("shuffle", swapped).load_state_dict(state)
    help.make_loader("shuffle", _copies(paths, tmp_path)).load_state_dict(state)  # moved as a whole


def test_files_of_the_same_name_in_another_order(paths: list[str], tmp_path: Path) -> None:
    both = []
    for kind, source in (("cats", paths[2]), ("dogs", paths[4])):
        copy = tmp_path / kind / "000.mp4"
        copy.parent.mkdir()
        copy.write_bytes(Path(source).read_bytes())
        both.append(str(copy))
    state = help.make_loader("shuffle", both).state_dict()
    with pytest.raises(StateError, match="files"):
        help.make_loader("shuffle", both[::-1]).load_state_dict(state)


def test_states_of_other_batch_samplers(paths: list[str]) -> None:
    dataset = help.make_dataset(paths)

    def loader(batch_size: int) -> VideoLoader:
        return VideoLoader(dataset, batch_sampler=BatchSampler(SequentialSampler(range(36)), batch_size, False))

    one = loader(4)
    iterator = iter(one)
    next(iterator), next(iterator)
    iterator.close()
    with pytest.raises(StateError, match="batch"):
        loader(8).load_state_dict(one.state_dict())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[1, 2]",
        b'"text"',
        b"{}",
        b"\x80\x04\x95 pickled",
        b"\0" * 300,
        b'{"version": 1}',
        b'{"version": "1"}',
        b"[" * 100_000,
    ],
    ids=lambda content: repr(content[:12]),
)
def test_garbage(content: bytes, paths: list[str], tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    loader = help.make_loader("shuffle", paths)
    before = loader.state_dict()
    with pytest.raises(StateError) as caught:
        loader.load_state(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert loader.state_dict() == before


def test_truncated_anywhere(paths: list[str], tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    loader = help.make_loader("random_generator", paths)
    next(iter(loader))
    loader.save_state(path)
    whole = path.read_bytes()
    for length in [*range(0, 400, 7), len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(StateError, match=f"^{path}: "):
            loader.load_state(path)


@pytest.mark.parametrize("version", [0, 2, 99, None])
def test_other_versions(version: int | None, paths: list[str], tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    loader = help.make_loader("shuffle", paths)
    path.write_text(json.dumps({**loader.state_dict(), "version": version}))
    with pytest.raises(StateError, match=f"{path}: .*version 1"):
        loader.load_state(path)


MISSING = "missing"


def _absurd_parts() -> Iterator[Any]:
    for key in ("epoch", "batch", "finished", "sampler", "world"):
        values: tuple[Any, ...] = (MISSING, None, "text", -1, [], 1.5)
        for value in values:
            yield pytest.param(key, value, id=f"{key}-{value}")


@pytest.mark.parametrize(("key", "value"), list(_absurd_parts()))
def test_parts_that_are_missing_or_absurd(key: str, value: Any, paths: list[str], tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    loader = help.make_loader("shuffle", paths)
    iterator = iter(loader)
    next(iterator)
    state = _json(loader.state_dict())
    del state[key]
    if value != MISSING:
        state[key] = value
    path.write_text(json.dumps(state))
    other = help.make_loader("shuffle", paths)
    before = other.state_dict()
    with pytest.raises(StateError, match=f"^{path}: "):
        other.load_state(path)
    assert other.state_dict() == before
