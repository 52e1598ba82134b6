"""A script that keeps its own loop: alone, and in worker processes that come and go. The test plays the supervisor."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edt_sdk.schemas.wire import link as wire
from edt_sdk.training.member.script_worker import SCRIPT
from edt_sdk.training.user import payload
from tests.training.stand_in import StandIn
from tests.waiting import until

HERE = Path(__file__).parent
UPDATES = 30


def notes(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "notes").read_text().splitlines()]


def without_pids(told: list[Any]) -> list[Any]:
    return [note[1:] for note in told]


def run_alone(script: str, folder: Path) -> list[Any]:
    """Return what a script sees without a job."""
    subprocess.run([sys.executable, str(HERE / script), str(folder)], check=True, cwd=folder, timeout=170)
    return without_pids(notes(folder))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("alone")
    told = run_alone("own_loop.py", folder)
    assert (folder / "best.pth").exists()
    return told


@contextmanager
def job_of(script: str, shards: int, *, memory: bool = False, args: tuple[str, ...] = ()) -> Iterator[StandIn]:
    with StandIn(memory=memory) as job:
        job.job = msgspec.structs.replace(job.job, args=(str(job.root), *args))
        (job.code / "main.py").write_text((HERE / script).read_text())
        payload.write(job.paths.payload(0), payload.dump({SCRIPT: {"shards": shards}}, []))
        yield job


@pytest.fixture
def job() -> Iterator[StandIn]:
    with job_of("own_loop.py", 4) as made:
        yield made


def hold(job: StandIn, *epochs: int) -> None:
    for epoch in epochs:
        (job.root / f"hold-{epoch}").touch()


def let_go(job: StandIn, epoch: int) -> None:
    (job.root / f"hold-{epoch}").unlink()


def lose(job: StandIn, number: int, gone: int, *left: int, at: int) -> None:
    """Kill a worker while the script is held there, and let the others go on as generation `number`."""
    job.kill(gone)
    let_go(job, at)
    for worker in left:
        job.expect(f"w{worker}", wire.Broken)
    job.generation(number, *left)
    job.joined(number)


def ended(job: StandIn, *workers: int) -> int:
    """Wait for the end of the training, which the first of these workers reports. Return its updates."""
    updates: int = job.expect(f"w{workers[0]}", wire.Trained).updates
    for worker in workers:
        assert job.exit_code(f"w{worker}") == 0, job.children[f"w{worker}"].text
    return updates


def check(job: StandIn, alone: list[Any]) -> None:
    assert without_pids(notes(job.root)) == alone
    commits = [json.loads(line) for line in job.paths.commits(0).read_text().splitlines()]
    assert [commit["update"] for commit in commits] == list(range(UPDATES))
    seen: dict[int, list[int]] = {}
    for commit in commits:
        for shard in commit["shards"]:
            seen.setdefault(commit["epoch"], []).extend(shard["indices"])
    assert all(sorted(indices) == list(range(53)) for indices in seen.values())
    assert len(seen) == 6
    measured = [json.loads(line) for line in job.paths.metrics(0).read_text().splitlines()]
    tests = [(line["epoch"], line["name"], line["drawn"]) for line in measured if line["kind"] == "test"]
    names = ("", True), ("train", False), ("test2", False)
    assert tests == [(epoch, *name) for epoch in range(6) for name in names]


def test_one_worker_ends_with_the_bits_of_a_plain_process(job: StandIn, alone: list[Any]) -> None:
    job.prepare(0)
    job.generation(1, 0)
    assert ended(job, 0) == UPDATES
    check(job, alone)


def test_workers_that_come_and_go_end_with_the_same_bits(job: StandIn, alone: list[Any]) -> None:
    hold(job, 1, 3)
    job.prepare(0)
    job.generation(1, 0)
    job.joined(1)
    job.prepare(1, 2)
    job.generation(2, 0, 1, 2)
    let_go(job, 1)
    job.joined(2)
    job.generation(3, 1, 2)
    let_go(job, 3)
    assert job.expect("w0", wire.Left).generation == 3
    assert job.exit_code("w0") == 0, job.children["w0"].text
    job.joined(3)
    assert ended(job, 1, 2) == UPDATES
    check(job, alone)
    assert "variables of the script are not as in the others: begun is 2, here 1" in job.children["w1"].text


def test_a_killed_worker_costs_no_update(job: StandIn, alone: list[Any]) -> None:
    hold(job, 2)
    job.prepare(0, 1, 2)
    job.generation(1, 0, 1, 2)
    job.joined(1)
    until(lambda: (job.root / "notes").exists() and any(n[1:3] == ["begin", 2] for n in notes(job.root)), "epoch 2")
    lose(job, 2, 1, 0, 2, at=2)
    ended(job, 0, 2)
    check(job, alone)


def reached(job: StandIn, *note: Any) -> None:
    """Wait until the script has written this note."""

    def there() -> bool:
        return (job.root / "notes").exists() and list(note) in [n[1 : 1 + len(note)] for n in notes(job.root)]

    until(there, f"{note}")


def test_networks_in_turn_samples_by_weight_and_shared_results(tmp_path: Path) -> None:
    told = run_alone("two_networks.py", tmp_path)
    with job_of("two_networks.py", 3) as job:
        hold(job, 1, 2)
        job.prepare(0)
        job.generation(1, 0)
        job.joined(1)
        job.prepare(1, 2)
        job.generation(2, 0, 1, 2)
        let_go(job, 1)
        job.joined(2)
        reached(job, "begin", 2)
        lose(job, 3, 0, 1, 2, at=2)
        ended(job, 1, 2)
        assert without_pids(notes(job.root)) == told


def test_where_all_workers_die_the_next_go_on_from_the_newest_state(alone: list[Any]) -> None:
    with job_of("own_loop.py", 4, memory=True) as job:
        hold(job, 3)
        job.prepare(0, 1)
        job.generation(1, 0, 1)
        reached(job, "begin", 3, 15)
        job.kill(0, 1)
        let_go(job, 3)
        job.prepare(2, 3)
        job.generation(2, 2, 3)
        ended(job, 2, 3)
        assert "going on after update" in job.children["w2"].text
        told = without_pids(notes(job.root))
        assert [note for note in told if note[0] == "end"] == [note for note in alone if note[0] == "end"]
        again = [note[1] for note in told if note[0] == "update" and told.count(note) > 1]
        assert min(again, default=15) > 0, "it does not begin anew"


def test_a_job_suspended_goes_on_where_it_was(job: StandIn, alone: list[Any]) -> None:
    hold(job, 2)
    job.prepare(0, 1)
    job.generation(1, 0, 1)
    reached(job, "begin", 2, 10)
    job.generation(2, told=(0, 1))
    let_go(job, 2)
    for name in ("w0", "w1"):
        job.expect(name, wire.Left)
        assert job.exit_code(name) == 0, job.children[name].text
    job.prepare(2)
    job.generation(3, 2)
    ended(job, 2)
    # The epoch during which it was suspended begins twice, with the state that it has there.
    told = [note for note in without_pids(notes(job.root)) if note[0] != "begin"]
    assert told == [note for note in alone if note[0] != "begin"]
