"""What if, asked of a training that runs: a forecast, more workers sooner, and the job left as it is."""

import time

from edt_sdk.testing import LocalServer
from edt_server.simulator.recorded import read_events, recorded_run, workload_of


def test_of_a_job_that_trains_and_its_past_played_again(tmp_path, slow_trainer):
    go = tmp_path / "go"
    with LocalServer(tmp_path / "server", slots=2, traits={"EdtApp.threads_per_slot": 1}) as server:
        client = server.client()
        job = client.submit(slow_trainer, name="trains", max_workers=2, args=[str(go)], progress=False)
        deadline = time.monotonic() + 120
        while (answer := job.what_if(max_workers=1)).ends_now is None or answer.shares[0].now < 2:
            assert time.monotonic() < deadline, job.refresh().view
            time.sleep(0.2)
        assert time.time() < answer.ends_now < answer.ends_then
        assert (answer.shares[0].name, answer.shares[0].then) == ("trains", 1)
        assert job.refresh().view.max_workers == 2
        go.touch()
        job.wait(300, progress=False)
        client.close()
    (store,) = tmp_path.rglob("edt.sqlite")
    events = read_events(store)
    (life,) = recorded_run(events).lives
    assert life.end is not None
    assert max(size for _, size in life.sizes) == 2
    assert workload_of(events)[0].work > 0
