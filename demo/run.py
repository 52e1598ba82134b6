"""`make demo`: `two_trainings.ipynb` beside this on a real Jupyter Server, and a check that all it shows has happened.

Starts a server with the extension and four CPU slots on a free loopback port, with folders of its own below `.demo/`,
and runs a copy of the notebook in one of its kernels. Exits 0 only if the allocation went 4, 2/2, 1/3, 4, both
trainings finished above 95 %, and no process was left behind.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

from leftovers import end, leftovers, wait_for_none
from live_notebook import run_notebook
from nbclient.exceptions import CellExecutionError, DeadKernelError

from edt_sdk import Client, Job
from edt_sdk.display.readings import Timeline
from edt_sdk.testing import LocalServer

REPOSITORY = Path(__file__).resolve().parents[1]
ROOT = REPOSITORY / ".demo"
NOTEBOOK = "two_trainings.ipynb"
# Slots of (digits-a, digits-b), in the order in which they must settle.
EXPECTED = [(4, 0), (2, 2), (1, 3), (0, 4)]
CELL_LIMIT = 900
ACCURACY = 0.95


def main() -> int:
    began = time.monotonic()
    end(leftovers(ROOT))  # of a demo that was killed
    shutil.rmtree(ROOT, ignore_errors=True)
    shutil.copytree(REPOSITORY / "notebooks", ROOT / "notebooks", ignore=shutil.ignore_patterns("models", ".*"))
    shutil.copy(REPOSITORY / "demo" / NOTEBOOK, ROOT / "notebooks")  # it trains what lies there
    failures = []
    traits = {"ServerApp.root_dir": ROOT / "notebooks", "EdtApp.threads_per_slot": 1}
    print("Starting a Jupyter Server with four CPU slots …", flush=True)
    # GPUs would be slots before CPUs are; what this shows must not depend on the machine.
    with LocalServer(ROOT, slots=4, traits=traits, environ={"CUDA_VISIBLE_DEVICES": ""}) as server:
        print(f"It answers at {server.url}. Running {NOTEBOOK} in one of its kernels:", flush=True)
        try:
            run_notebook(server, ROOT / "notebooks" / NOTEBOOK, limit=CELL_LIMIT)
        except CellExecutionError as error:
            failures.append(f"the notebook raised {error.ename}: {error.evalue}")
        except DeadKernelError:
            failures.append("the notebook's kernel was interrupted or died")
        failures += report(server.client())
    left = wait_for_none(ROOT, 15)
    if left:
        failures += [f"process {p.pid} was left behind: {' '.join(p.cmdline())[:150]}" for p in left]
        end(left)
    return conclude(failures, time.monotonic() - began)


def report(client: Client) -> list[str]:
    """Print what happened as the server tells it; sentences for what did not."""
    jobs = {job.name: job for job in client.jobs()}
    timeline = client.timeline()
    print("\n━━ The allocation, from the server's event list\n")
    print(timeline.table())
    if not {"digits-a", "digits-b"} <= jobs.keys():
        return ["the notebook did not submit digits-a and digits-b"]
    first, second = jobs["digits-a"], jobs["digits-b"]
    failures = check_allocation(timeline.rows, first, second)
    if not failures:
        keep_for_the_picture(timeline, first, second)
    print()
    for job in (first, second):
        failures += check_job(job)
    return failures


def keep_for_the_picture(timeline: Timeline, first: Job, second: Job) -> None:
    """Write what `demo/picture.py` draws."""
    changed = next(event.time for event in second.story() if event.kind == "job_changed")
    trained = next(event.time for event in first.story() if event.kind == "training_ended")
    notes = [
        (first.view.created, first.name),
        (second.view.created, second.name),
        (changed, f"{second.name}: twice the priority"),
        (trained, f"{first.name} is done"),
    ]
    picture = {"rows": timeline.rows, "names": timeline.names, "capacity": timeline.capacity, "notes": notes}
    (ROOT / "timeline.json").write_text(json.dumps(picture))


def check_allocation(rows, first: Job, second: Job) -> list[str]:
    """Whether `EXPECTED` is the order of the settled allocations; what lies between two of them does not matter."""
    settled = [(row["slots"].get(first.id, 0), row["slots"].get(second.id, 0)) for row in rows if row["settled"]]
    rest = iter(settled)
    missing = [held for held in EXPECTED if held not in rest]
    return [f"the allocation (digits-a, digits-b) never settled at {missing[0]} in its turn"] if missing else []


def check_job(job: Job) -> list[str]:
    """Whether it finished and learned; prints one line about it."""
    accuracy = job.metrics().test_accuracy or 0.0
    model = job.result_dir / "model" / "train" / "model_epoch_final.pth"
    print(f"{job.name}  {job.view.state}  test accuracy {accuracy:.1%}  {model}")
    failures = []
    if job.view.state != "FINISHED":
        failures.append(f"{job.name} ended as {job.view.state}: {job.view.message}")
    if accuracy <= ACCURACY:
        failures.append(f"{job.name} reached {accuracy:.1%}, not more than {ACCURACY:.0%}")
    if not model.is_file():
        failures.append(f"{job.name} left no {model}")
    return failures


def conclude(failures: list[str], seconds: float) -> int:
    print()
    for failure in failures:
        print(f"✗ {failure}")
    if failures:
        print(f"\nThe demo failed after {seconds:.0f} s. The server's log is {ROOT / 'server.log'}.")
        return 1
    print(f"✓ 4 → 2/2 → 1/3 → 4, both above {ACCURACY:.0%}, no process left. It took {seconds:.0f} s.")
    print(f"  The notebook as it ran: {ROOT / 'notebooks' / NOTEBOOK}")
    print("  Try it yourself in JupyterLab: make lab")
    return 0


if __name__ == "__main__":
    sys.exit(main())
