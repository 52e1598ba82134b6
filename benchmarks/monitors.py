"""Measure what ten open monitors cost a server on the kernel's side: its CPU time and its requests.

One real server, four slots, ten jobs: four train, six wait. A real kernel opens ten monitors, one of each job. Requests
are counted where they leave the kernel, and the server's CPU time is what the system reports for its process. Stretches
of equal length alternate: ten monitors that no page shows any more, then ten that a page shows. The jobs cost the
server something in both, so the first is subtracted from the second. What the page asks is the same as for the tab
of a job, and not part of this.

Targets: at most 10 requests a second and 5 % of a core for ten monitors, and no request for those that no page shows.
Takes two minutes (`--quick`: half a minute); writes `.bench/monitors.json`; exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.report import finish, table  # noqa: E402
from benchmarks.summary import Check  # noqa: E402
from edt_sdk.testing import LocalServer  # noqa: E402

MONITORS = 10
SHOWN = "shown by a page"
HIDDEN = "shown by no page"
TRAINING = """
import sys, time, torch
from pathlib import Path
from fabric_model import FabricModel


class Slow(torch.utils.data.Dataset):
    def __len__(self): return 100_000

    def __getitem__(self, index):
        time.sleep(0.1)
        return torch.ones(4), index % 2


model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
fabric = FabricModel(model, lambda: (Slow(), None), torch.nn.CrossEntropyLoss(), optimizer)
fabric.train(1, 1, 4)
"""
OPEN = """
import edt_sdk.http.connection
from edt_sdk import Client

asked, really = [], edt_sdk.http.connection.Connection.open

def counted(self, method, path, **options):
    asked.append(path)
    return really(self, method, path, **options)

edt_sdk.http.connection.Connection.open = counted
monitors = [job.monitor() for job in Client({url!r}, {token!r}).jobs()]
"""
TELL = "for each in monitors:\n    each._received(None, {{'kind': {kind!r}}}, [])\n"


class Kernel:
    """A kernel of its own, as a notebook's."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3")

    def run(self, code: str) -> str:
        """Execute; what it printed. RuntimeError when it raises."""
        printed: list[str] = []

        def take(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])

        client: BlockingKernelClient = self.client
        answer = client.execute_interactive(code, output_hook=take, timeout=120)
        if answer["content"]["status"] != "ok":
            raise RuntimeError("\n".join(answer["content"]["traceback"]))
        return "".join(printed)

    def stop(self) -> None:
        """End it."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def stretch(kernel: Kernel, server: psutil.Process, seconds: float) -> tuple[float, float]:
    """Requests a second, and the share of a core that the server took, over so many seconds."""
    kernel.run("asked.clear()")
    before, begun = server.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, lasted = server.cpu_times(), time.monotonic() - begun
    asked = int(kernel.run("print(len(asked))"))
    return asked / lasted, (after.user + after.system - before.user - before.system) / lasted


def measure(server: LocalServer, seconds: float, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Each stretch once a round."""
    kernel, process = Kernel(), psutil.Process(server.pid)
    try:
        kernel.run(OPEN.format(url=server.url, token=server.token))
        found: dict[str, list[tuple[float, float]]] = {HIDDEN: [], SHOWN: []}
        for _ in range(rounds):
            kernel.run(TELL.format(kind="gone"))
            time.sleep(2.0)  # a look that was under way ends
            found[HIDDEN].append(stretch(kernel, process, seconds))
            kernel.run(TELL.format(kind="seen"))
            found[SHOWN].append(stretch(kernel, process, seconds))
    finally:
        kernel.stop()
    return found


def main() -> int:
    """The benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one minute")
    quick = parser.parse_args().quick
    folder = Path(tempfile.mkdtemp(prefix="edt-monitors-"))
    hidden = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    code = folder / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAINING)
    try:
        with LocalServer(folder / "server", traits={"EdtApp.threads_per_slot": 1}, environ=hidden) as server:
            client = server.client()
            jobs = [client.submit(code, name=f"job {n}", max_workers=1, progress=False) for n in range(MONITORS)]
            while sum(job.refresh().view.progress is not None for job in jobs) < server.slots:
                time.sleep(0.2)
            found = measure(server, 5.0 if quick else 10.0, 2 if quick else 3)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report(found)


def report(found: dict[str, list[tuple[float, float]]]) -> int:
    """Table, checks, JSON."""
    idle = median(cpu for _, cpu in found[HIDDEN])
    rows = [("ten monitors", "requests a second", "share of a core", "more than with none")]
    for name, stretches in found.items():
        requests, cpu = (median(values) for values in zip(*stretches, strict=True))
        rows.append((name, f"{requests:.1f}", f"{100 * cpu:.1f} %", f"{100 * (cpu - idle):.1f} %"))
    print(table(rows))
    busiest = median(requests for requests, _ in found[SHOWN])
    dearest = median(cpu for _, cpu in found[SHOWN]) - idle
    unseen = sum(r for r, _ in found[HIDDEN])
    checks = [
        Check("requests a second of ten monitors", busiest, 10.0, "at most"),
        Check("share of a core that they cost the server", dearest, 0.05, "at most"),
        Check("requests of those that no page shows", unseen, 0.0, "at most"),
    ]
    return finish("monitors", {"stretches": found, "monitors": MONITORS}, checks)


if __name__ == "__main__":
    sys.exit(main())
