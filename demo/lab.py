"""`make lab`: JupyterLab on the notebooks, on a server like the demo's with four CPU slots.

The notebooks are copied to `my-notebooks/`, which git ignores, and a file there is never overwritten. Jobs, results,
port and token stay in `.lab/`, so a restart has the same address and an open browser tab goes on. Jobs that still train
when Lab is ended go on. `make clean` removes `.lab/`, and keeps `my-notebooks/`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil

from edt_sdk.http.discovery import LAB_RUNTIME, RunningServer, Server, probe, running_servers
from edt_sdk.schemas.errors import EdtError
from edt_sdk.testing import LocalServer

REPOSITORY = Path(__file__).resolve().parents[1]
FIRST = "01_quickstart.ipynb"
NOT_COPIED = shutil.ignore_patterns("models", "__pycache__", ".ipynb_checkpoints")


class Address(msgspec.Struct):
    """Where the browser tabs of the last start expect the server."""

    port: int = 0
    token: str = ""


def main() -> int:
    options = parse()
    root = options.root.resolve()
    if running := answering(root / LAB_RUNTIME):
        print(f"JupyterLab of this checkout runs already. To end it: kill {running.pid}")
        tell(running.url, running.token)
        return 0
    kept = root / ".lab" / "address.json"
    server = make_server(root, read(kept), browser=options.browser)
    # A closed terminal or a `kill` ends it the same way as Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        server.start()
        port = urlsplit(server.url).port or 0
        if server.port not in (0, port):
            print(f"Port {server.port} is taken, so the address has changed: close the old browser tab.")
        kept.touch(mode=0o600)
        kept.write_bytes(msgspec.json.encode(Address(port, server.token)))
        tell(server.url, server.token)
        print("Ctrl-C ends it. Trainings go on, and JupyterLab shows them again after the next `make lab`.", flush=True)
        psutil.Process(server.pid).wait()
    except KeyboardInterrupt:
        print("\nEnding JupyterLab …", flush=True)
    finally:
        server.stop(end_jobs=False)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make lab", description="JupyterLab on the notebooks, with four CPU slots.")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="folder of .lab/ and my-notebooks/")
    # A machine without a screen has no browser worth opening, unless the user names one.
    seen = any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
    parser.add_argument(
        "--browser", action=argparse.BooleanOptionalAction, default=seen, help="open the web browser, as BROWSER says"
    )
    return parser.parse_args()


def answering(runtime: Path) -> RunningServer | None:
    """Return the server that an earlier `make lab` of this checkout runs."""
    for running in running_servers(runtime):
        with suppress(EdtError):
            probe(Server(running.url, running.token, "make lab", True))
            return running
    return None


def read(kept: Path) -> Address:
    try:
        return msgspec.json.decode(kept.read_bytes(), type=Address)
    except (OSError, msgspec.DecodeError):
        return Address()


def make_server(root: Path, address: Address, *, browser: bool) -> LocalServer:
    notebooks = root / "my-notebooks"
    shutil.copytree(
        REPOSITORY / "notebooks", notebooks, ignore=NOT_COPIED, copy_function=copy_if_missing, dirs_exist_ok=True
    )
    traits = {
        "ServerApp.root_dir": notebooks,
        "ServerApp.open_browser": browser,
        # Without this a terminal is a login shell, and /etc/profile takes .venv/bin off its PATH.
        "ServerApp.terminado_settings": {"shell_command": [os.environ.get("SHELL") or "sh"]},
        "LabApp.default_url": f"/lab/tree/{FIRST}",
        "EdtApp.threads_per_slot": 1,
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environ = {"CUDA_VISIBLE_DEVICES": "", "PATH": path}
    return LocalServer(
        root / ".lab",
        slots=4,
        traits=traits,
        environ=environ,
        app="lab",
        leashed=False,
        port=address.port,
        token=address.token,
    )


def copy_if_missing(source: str, target: str) -> None:
    if not Path(target).exists():
        shutil.copy(source, target)


def tell(url: str, token: str) -> None:
    print(f"Open this: {url}lab/tree/{FIRST}?token={token}")
    print(f"`edt` finds it in this folder. In another folder: export EDT_URL={url} EDT_TOKEN={token}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
