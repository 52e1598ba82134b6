"""Two servers over one job store: from the leader's death, or its being stopped, to the first answer of the next one.

What a user notices: a request that is sent to the other server in the instant of the signal waits there until that
server leads and answers. One that was killed is started again and follows, one that was stopped (SIGSTOP) is let go on
and follows; the roles are the other way round then. Both servers are real and on one machine, where a follower sees the
leader's process end or stand still; a job runs meanwhile and must still be running, with the workers it had. What the
one that was stopped answers when it goes on is what the next leader has been told since.

Takes about three minutes; `--quick` does two rounds of each. Writes `.bench/take_over.json`; exit code 1 when a target
is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from benchmarks.report import ROOT, finish, table
from benchmarks.summary import Check, duration, summarize
from edt_sdk.testing import LocalServer

TARGET = 2.0
SCRIPT = "# FabricModel\nimport time\nwhile True:\n    time.sleep(1)\n"


def pair(folder: Path) -> list[LocalServer]:
    """A leader and a follower over one data folder."""
    data_dir = folder / "edt"
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.data_dir": data_dir}
    servers = [LocalServer(folder / name, slots=2, traits=traits) for name in "ab"]
    for server in servers:
        server.data_dir = data_dir
        server.start()
    return servers


def take_over(leader: LocalServer, follower: LocalServer, job: str, number: signal.Signals) -> float:
    """Send one the signal; seconds until the other has answered what only a leader knows."""
    client = follower.client()
    before = [worker["pid"] for worker in client.job(job).workers()]
    begun = time.monotonic()
    if number is signal.SIGKILL:
        leader.kill()
    else:
        os.kill(leader.pid, number)
    view = client.job(job).view
    took = time.monotonic() - begun
    after = [worker["pid"] for worker in client.job(job).workers()]
    assert view.state.value == "RUNNING", view
    assert before == after, (before, after)
    return took


def goes_on(stopped: LocalServer, leader: LocalServer, job: str, priority: int) -> float:
    """Let one go on that was stopped; seconds until it has answered, rightly, what was changed meanwhile."""
    leader.client().job(job).update(priority=priority)
    begun = time.monotonic()
    os.kill(stopped.pid, signal.SIGCONT)
    view = stopped.client().job(job).view
    took = time.monotonic() - begun
    assert view.priority == priority, view
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, help="deaths, and stops (default 20)")
    parser.add_argument("--quick", action="store_true", help="two of each")
    options = parser.parse_args()
    rounds = 2 if options.quick else options.repeat
    folder = ROOT / "take_over"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    servers = pair(folder)
    leader, follower = servers
    killed: list[float] = []
    stopped: list[float] = []
    back: list[float] = []
    try:
        job = servers[0].client().submit(folder / "train.py", framework="PyTorch", progress=False)
        while job.refresh().view.state.value != "RUNNING":
            time.sleep(0.1)
        for number in range(rounds):
            killed.append(take_over(leader, follower, job.id, signal.SIGKILL))
            print(f"  {number + 1}: killed {duration(killed[-1])}", flush=True)
            leader.start()
            leader, follower = follower, leader
        for number in range(rounds):
            stopped.append(take_over(leader, follower, job.id, signal.SIGSTOP))
            back.append(goes_on(leader, follower, job.id, priority=5001 + number))
            print(f"  {number + 1}: stopped {duration(stopped[-1])}, let go on {duration(back[-1])}", flush=True)
            leader, follower = follower, leader
        leader.client().job(job.id).stop()
    finally:
        for server in servers:
            if server.running:
                os.kill(server.pid, signal.SIGCONT)
        for server in servers:
            if server.running:
                server.stop()
    rows, checks = [["what", "time"]], []
    for what, times, target in (
        ("leader killed → answer of the next", killed, TARGET),
        ("leader stopped → answer of the next", stopped, TARGET),
        ("let go on → its own answer, which is the next one's", back, None),
    ):
        summary = summarize(times)
        assert summary is not None
        rows.append([what, summary.text()])
        if target is not None:
            checks.append(Check(f"{what}, worst, s", summary.worst, target, "at most"))
    print(table(rows))
    return finish("take_over", {"times": killed, "stopped": stopped, "goes_on": back}, checks)


if __name__ == "__main__":
    sys.exit(main())
