"""`make lab`: JupyterLab on notebooks/, on a server like the demo's: four CPU slots, folders of its own below `.lab/`.

Jobs and results stay there for the next time, and jobs that still train when Lab is ended go on; `make clean` removes
what they left.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil

from edt_sdk.testing import LocalServer

REPOSITORY = Path(__file__).resolve().parents[1]


def main() -> int:
    traits = {"ServerApp.root_dir": REPOSITORY / "notebooks", "EdtApp.threads_per_slot": 1}
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    server = LocalServer(REPOSITORY / ".lab", slots=4, traits=traits, environ=hidden, app="lab", leashed=False).start()
    print(f"JupyterLab: {server.url}lab/tree/01_quickstart.ipynb?token={server.token}")
    print("Ctrl-C ends it; trainings go on, and are there again the next time.", flush=True)
    # A closed terminal or a `kill` ends it the same way as Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        psutil.Process(server.pid).wait()
    except KeyboardInterrupt:
        print("\nEnding JupyterLab …", flush=True)
    finally:
        server.stop(end_jobs=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
