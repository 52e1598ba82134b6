"""Opening the data set: the first worker alone, wrong ones refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.user.datasets import open_datasets


def test_the_first_opens_alone_the_others_side_by_side(tmp_path: Path) -> None:
    inside, most, order = 0, [], []
    lock, together = threading.Lock(), threading.Barrier(3)
    first = threading.Event()

    def function() -> tuple[list[int], list[int]]:
        nonlocal inside
        with lock:
            inside += 1
            most.append(inside)
            alone = not first.is_set()
            first.set()
        if alone:
            order.append("first begins")
            assert inside == 1
            order.append("first ends")
        else:
            together.wait(180)  # broken unless three are inside at the same time
        with lock:
            inside -= 1
        return [1], []

    threads = [threading.Thread(target=open_datasets, args=(function, tmp_path / "lock")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert most[0] == 1
    assert sorted(most[1:]) == [1, 2, 3]
    assert not together.broken


def test_when_the_first_fails_the_next_one_is_the_first(tmp_path: Path) -> None:
    def fails() -> Any:
        raise OSError("no network")

    with pytest.raises(OSError, match="network"):
        open_datasets(fails, tmp_path / "lock")
    assert (tmp_path / "lock").stat().st_size == 0
    assert open_datasets(lambda: ([1, 2], [3]), tmp_path / "lock") == ([1, 2], [3])
    assert (tmp_path / "lock").stat().st_size > 0


@pytest.mark.parametrize("test", [None, []])
def test_nothing_to_validate_with(tmp_path: Path, test: Any) -> None:
    assert open_datasets(lambda: [[1], test], tmp_path / "lock") == ([1], None)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "not a NoneType"),
        ([1], "not a list of 1"),
        ((1, 2, 3), "not a tuple of 3"),
        (([], [1]), "training set is empty"),
        ((iter([1]), [1]), "training set is a list_iterator"),
        (([1], 7), "test set is a int"),
        ((None, [1]), "training set is a NoneType"),
    ],
)
def test_what_a_data_set_function_may_not_return(tmp_path: Path, result: Any, said: str) -> None:
    with pytest.raises(Unprocessable, match=said):
        open_datasets(lambda: result, tmp_path / "lock")
