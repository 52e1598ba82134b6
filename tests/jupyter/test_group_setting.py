"""Groups named on a real command line: of `jupyter edt`, and of a Jupyter Server that has the extension."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import requests
from jupyter_server.serverapp import list_running_servers
from traitlets import TraitError

from edt_jupyter.group_setting import GroupSetting

GROUPS = ["--EdtApp.instance_groups=day", '--EdtApp.instance_groups={"name": "night", "own": 2, "lend": null}']
CPUS = "--EdtApp.resource_groups={'name': 'cpus', 'slots': '3'}"


@pytest.mark.parametrize("program", [["-m", "edt_jupyter.app"], ["-m", "jupyter", "server", "--no-browser"]])
def test_a_dict_on_the_command_line_is_a_group_with_settings(tmp_path, program):
    runtime = tmp_path / "runtime"
    env = {**os.environ, "JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
    said = tmp_path / "log"
    options = [f"--EdtApp.data_dir={tmp_path / 'edt'}", "--EdtApp.warm_workers=0", *GROUPS, CPUS]
    own = [
        "--allow-root",
        "--ServerApp.port=0",
        "--IdentityProvider.token=secret",
        "--ServerApp.jpserver_extensions=edt_jupyter=True",
    ]
    with said.open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, *program, *options, *own], env=env, cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        plan = plan_of(server, runtime, said)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(180)
    day, night = plan["instance_groups"]
    assert (day["name"], night["name"], night["own"], night["lend"]) == ("day", "night", 2, None)
    cpus = {"name": "cpus", "hosts": [], "slots": "3", "portable": False}
    assert (day["resource_group"], plan["resource_groups"]) == ("cpus", [cpus])


def plan_of(server, runtime, said):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        for found in list_running_servers(str(runtime)):
            try:
                answer = requests.get(f"{found['url']}edt/api/plan?token=secret", timeout=120)
            except requests.ConnectionError:
                continue  # Jupyter announces its address before it listens there
            if answer.status_code == 503:
                continue  # it is starting
            assert answer.status_code == 200, answer.text
            return json.loads(answer.text)
        time.sleep(0.1)
    raise AssertionError(said.read_text())


@pytest.mark.parametrize("text", ["{'name': ", "[{'name': 'a'}, 'b']"])
def test_what_is_no_group_is_refused_with_a_sentence(text):
    with pytest.raises(TraitError, match=r"neither JSON|option of its own"):
        GroupSetting().from_string(text)
