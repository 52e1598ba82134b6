"""A plain script that leaves a mark when it runs twice, or twice at once."""

import fcntl
import os
import sys
import time
from pathlib import Path

folder = Path(os.environ["RESULT_DIR"])
with (folder / "lock").open("a") as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (folder / "twice").touch()
        raise
    with (folder / "runs").open("a") as runs:
        runs.write(f"{os.getpid()}\n")
    for step in range(int(sys.argv[1])):
        print(f"step {step}", flush=True)
        time.sleep(0.1)
