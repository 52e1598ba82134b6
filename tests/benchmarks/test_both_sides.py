"""The benchmarks' measuring, once through with tiny numbers: a real server, real torchrun. No time is judged."""

import random

import pytest

from benchmarks import failure, first_step, rescale
from benchmarks.our_jobs import import_torch, server
from benchmarks.server_processes import Spares
from benchmarks.torchrun_agents import BEST, TorchrunJob

TINY = rescale.Size(0, ("--width", "64", "--rows", "8", "--samples", "4"), hold=5)


@pytest.fixture(scope="module")
def on(tmp_path_factory):
    with server(tmp_path_factory.mktemp("server"), warm=False) as running:
        yield running


def test_our_changes_are_measured(on):
    found = rescale.ours(on, TINY, random.Random(0), 1)
    assert [(one.request.before, one.request.after) for one in found] == [(1, 2), (2, 4), (4, 3), (3, 1)]
    assert all(one.delay > 0 and one.repeated == 0 for one in found)


@pytest.mark.long
def test_our_changes_from_nothing_are_measured_beside_what_importing_torch_takes(on):
    found = rescale.ours(on, TINY, random.Random(0), 1, from_nothing=True)
    assert [(one.request.before, one.request.after) for one in found] == [(1, 2), (2, 4)]
    assert all(one.delay > 0 and one.repeated == 0 for one in found)
    assert import_torch() > 0


@pytest.mark.long
def test_our_changes_are_measured_beside_a_spare(tmp_path):
    with server(tmp_path, warm=True) as warm:
        spares = Spares(warm.pid)
        spares.wait()
        found = rescale.ours(warm, TINY, random.Random(0), 1, spares=spares)
    assert len(found) == 4


def test_our_first_step_is_measured(on):
    assert first_step.ours(on) > 0


def test_the_script_alone_is_measured(tmp_path):
    assert first_step.alone(tmp_path / "plain", ()) > 0


def test_torchruns_changes_are_measured_and_nothing_of_it_stays(tmp_path):
    with TorchrunJob(tmp_path / "job", BEST, TINY.arguments) as job:
        job.resize(1)
        requests = rescale.walk(job, (1, 2), 1, TINY.hold, random.Random(0))
        assert len(job.pids()) == 2
    assert job.pids() == []
    found = rescale.changes(job.log.read(), requests)
    assert [(one.request.before, one.request.after) for one in found] == [(1, 2)]
    assert list(tmp_path.glob("job/*.pt")) == []


@pytest.mark.long
def test_our_recoveries_are_measured_and_the_end_is_right(on, monkeypatch):
    monkeypatch.setattr(failure, "RESERVE", 100)
    reference = failure.undisturbed(on, updates=260)
    ending = failure.ours(on, 2, 1, 260, random.Random(0))
    assert [one.world for one in ending.recoveries] == [2]
    assert (ending.state, ending.wrong_numbers, ending.discarded) == ("FINISHED", 0, 0)
    assert ending.final_hash == reference
