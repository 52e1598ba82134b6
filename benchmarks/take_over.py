"""Two servers over one job store: from the leader's death to the first answer of the next one.

What a user notices: a request that is sent to the other server in the instant of the kill waits there until that
server leads and answers. Then the one that was killed is started again and follows, and the roles are the other way
round. Both servers are real and on one machine, where a follower sees the leader's lock go; a job runs meanwhile and
must still be running, with the workers it had.

Takes about two minutes; `--quick` does two rounds. Writes `.bench/take_over.json`; exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from benchmarks.report import ROOT, finish, table
from benchmarks.summary import Check, duration, summarize
from edt_sdk.testing import LocalServer

TARGET = 2.0
SCRIPT = "import time\nwhile True:\n    time.sleep(1)\n"


def pair(folder: Path) -> list[LocalServer]:
    """A leader and a follower over one data folder."""
    data_dir = folder / "edt"
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.data_dir": data_dir}
    servers = [LocalServer(folder / name, slots=2, traits=traits) for name in "ab"]
    for server in servers:
        server.data_dir = data_dir
        server.start()
    return servers


def take_over(leader: LocalServer, follower: LocalServer, job: str) -> float:
    """Kill one; seconds until the other has answered what only a leader knows."""
    client = follower.client()
    before = [worker["pid"] for worker in client.job(job).workers()]
    begun = time.monotonic()
    leader.kill()
    view = client.job(job).view
    took = time.monotonic() - begun
    after = [worker["pid"] for worker in client.job(job).workers()]
    assert view.state.value == "RUNNING", view
    assert before == after, (before, after)
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, help="deaths (default 20)")
    parser.add_argument("--quick", action="store_true", help="two deaths")
    options = parser.parse_args()
    folder = ROOT / "take_over"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    servers = pair(folder)
    times: list[float] = []
    try:
        job = servers[0].client().submit(folder / "train.py", framework="PyTorch", progress=False)
        while job.refresh().view.state.value != "RUNNING":
            time.sleep(0.1)
        for number in range(2 if options.quick else options.repeat):
            leader, follower = servers if number % 2 == 0 else servers[::-1]
            times.append(take_over(leader, follower, job.id))
            print(f"  {number + 1}: {duration(times[-1])}", flush=True)
            leader.start()
        follower.client().job(job.id).stop()
    finally:
        for server in servers:
            if server.running:
                server.stop()
    summary = summarize(times)
    assert summary is not None
    print(table([["what", "time"], ["leader killed → answer of the next", summary.text()]]))
    check = Check("leader killed → answer of the next, worst, s", summary.worst, TARGET, "at most")
    return finish("take_over", {"times": times}, [check])


if __name__ == "__main__":
    sys.exit(main())
