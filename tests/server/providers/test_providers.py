"""The settings, the command of an agent, and what the shared loop does with an engine that a test plays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_server.providers import ProvidedState, Wish, factory, join_command, level, make_provider
from edt_server.providers.provider import Provided
from tests.server.providers.engines import Tokens, all_up, gone, reported, states, up
from tests.waiting import until_async

_SERVER = """
import asyncio, json, sys
from edt_server.providers import Wish, make_provider

class Tokens:
    python = sys.argv[1]
    async def token(self, host_id):
        return "edt1:x"

async def main():
    provider = make_provider("ssh", json.loads(sys.argv[2]), Tokens(), mark=sys.argv[3])
    await provider.want(Wish(hosts=1))
    await asyncio.Event().wait()

asyncio.run(main())
"""


def made(name, **settings):
    return make_provider(name, settings, Tokens("python"))


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("lsf", {}, ["no provider 'lsf'", "kubernetes, ray, slurm, ssh"]),
        ("a100", {"kind": "pbs"}, ["no provider 'pbs'"]),
        ("ssh", {}, ["ssh", "hosts"]),
        ("ssh", {"hosts": []}, ["needs the names of machines"]),
        ("ssh", {"hosts": ["-oProxyCommand=x"]}, ["needs the names of machines"]),
        ("ssh", {"hosts": ["a", "A"]}, ["a machine twice"]),
        ("ssh", {"hosts": ["a"], "port": 3}, ["`port`", "There are", "options"]),
        ("slurm", {"max_hosts": "4"}, ["int", "max_hosts"]),
        ("slurm", {"max_hosts": 1, "min_hosts": 2}, ["min_hosts is 2 and max_hosts is 1"]),
        ("slurm", {"min_hosts": -1}, ["min_hosts is -1"]),
        ("kubernetes", {}, ["template"]),
        ("kubernetes", {"template": "/nowhere.yaml"}, ["/nowhere.yaml cannot be read"]),
    ],
)
def test_wrong_settings_are_refused_with_what_is_right(name, settings, words):
    with pytest.raises(Unprocessable) as refused:
        made(name, **settings)
    assert [word for word in words if word not in str(refused.value)] == []
    assert refused.value.ids["field"] == "providers"


def test_a_template_has_to_be_a_pod(tmp_path):
    for text in ("kind: Deployment\nspec: {containers: [{}]}", "kind: Pod\nspec: {}", "[", "3"):
        (tmp_path / "pod.yaml").write_text(text)
        with pytest.raises(Unprocessable, match="template"):
            made("kubernetes", template=str(tmp_path / "pod.yaml"))


def test_ray_without_ray_names_the_extra(monkeypatch):
    monkeypatch.setattr(factory.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unprocessable, match=r'pip install "jupyter-edt\[ray\]"'):
        made("ray")
    assert made("ray", driver="/opt/ray/bin/python").name == "ray"


def test_a_mark_that_no_engine_allows_is_refused():
    for mark in ("", "3", "A", "a_b", "a-", "a" * 31):
        with pytest.raises(Unprocessable, match="cannot begin the names"):
            make_provider("slurm", {}, Tokens("python"), mark=mark)


def test_two_providers_of_one_kind_have_two_names():
    provider = made("a100", kind="slurm", sbatch=["-p", "a100"])
    assert provider.name == "a100"
    assert made("ssh", hosts=["a", "b"]).settings.max_hosts == 2


def test_the_command_of_an_agent():
    assert join_command("/py", "ray", "edt-1") == [
        *("/py", "-P", "-m", "edt_server.agent", "join", "--token-file", "-", "--name", "edt-1"),
        *("--provider", "ray", "--provider-id", "edt-1"),
    ]
    more = join_command("/py", "ray", "edt-1", token_file="/t", folder="/scratch", slots=2)
    assert more[-4:] == ["--folder", "/scratch", "--slots", "2"]
    assert more[5:7] == ["--token-file", "/t"]


@pytest.mark.asyncio
async def test_a_smaller_wish_withdraws_what_waits_the_newest_first(fake):
    fake.queue = True
    provider = fake.provider(max_hosts=4)
    await provider.want(Wish(hosts=3))
    await until_async(lambda: len(fake.asked) == 3, "three orders")
    assert set((await states(provider)).values()) == {ProvidedState.ASKED}
    await provider.want(Wish(hosts=1))
    await until_async(lambda: len(fake.machines) == 1, "two to be withdrawn")
    assert list(fake.machines) == fake.asked[:1]
    assert fake.tokens.given.keys() & set(fake.asked) == set(), "a machine that waits has no token"
    fake.queue = False
    assert await all_up(provider, fake, 1) == set(fake.asked[:1])
    await provider.close(keep=False)


@pytest.mark.asyncio
async def test_a_host_that_never_joins_is_up_and_can_be_replaced(fake):
    fake.joins = False
    provider = fake.provider(max_hosts=1)
    await provider.want(Wish(hosts=1))
    (first,) = await until_async(lambda: _in(provider, ProvidedState.UP), "the machine to be up")
    fake.joins = True
    await provider.release(first, "Its agent has not joined in 300 s.")
    assert first not in await all_up(provider, fake, 1)
    await provider.close(keep=False)


@pytest.mark.asyncio
async def test_orders_that_are_refused_wait_twice_as_long_each_time(fake, monkeypatch):
    monkeypatch.setattr(level, "FIRST", 0.01)
    tried = []
    fake.refuses = "The quota is used up."
    provider = fake.provider(max_hosts=1)
    failed = level.BackOff.failed
    monkeypatch.setattr(level.BackOff, "failed", lambda self: (failed(self), tried.append(self._delay)))
    await provider.want(Wish(hosts=1))
    await until_async(lambda: len(tried) >= 4, "four refusals")
    assert tried[:4] == [0.01, 0.02, 0.04, 0.08]
    assert provider.trouble == "The quota is used up."
    fake.refuses = ""
    await all_up(provider, fake, 1)
    assert provider.trouble == ""
    await provider.close(keep=False)


def test_a_back_off_ends_at_its_longest(monkeypatch):
    back_off = level.BackOff()
    assert back_off.left == 0
    for _ in range(20):
        back_off.failed()
    assert level.LONGEST - 1 < back_off.left <= level.LONGEST


@pytest.mark.asyncio
async def test_a_machine_that_vanishes_is_gone_for_good(fake):
    provider = fake.provider(max_hosts=1)
    (first,) = await up(provider, fake, 1)
    fake.vanish(first)
    assert (await gone(provider, first)).why == "It is no longer there."
    (second,) = await all_up(provider, fake, 1)
    fake.machines[first] = Provided(first, ProvidedState.UP)  # as an engine may report that was restored
    await provider.want(Wish(hosts=1))
    await until_async(lambda: len(fake.asked) == 2, "the successor")
    assert (await reported(provider, first)).state is ProvidedState.GONE
    assert second in await states(provider)
    await provider.close(keep=False)


@pytest.mark.asyncio
async def test_an_agent_that_was_started_twice_is_one_machine(fake):
    provider = fake.provider(max_hosts=1)
    (first,) = await up(provider, fake, 1)
    fake.run(first, provider._join(first), "again")
    await until_async(lambda: len(list(fake.notes.glob(f"{first}.*.started"))) == 2, "the second agent")
    assert list(await states(provider)) == [first]
    await provider.want(Wish(hosts=0))
    await provider.release(first, "idle")
    await until_async(lambda: not fake.agents(), "both agents to end")
    await gone(provider, first)
    await provider.close(keep=False)


@pytest.mark.asyncio
async def test_a_release_while_the_engine_is_down_is_done_when_it_is_back(fake):
    provider = fake.provider(max_hosts=1)
    (first,) = await up(provider, fake, 1)
    fake.break_()
    await provider.want(Wish(hosts=0))
    await provider.release(first, "idle")
    await until_async(lambda: provider.trouble, "the trouble")
    assert fake.ended(first) is None
    fake.heal()
    await until_async(lambda: fake.ended(first) == "SIGTERM", "the agent to be ended")
    await provider.close(keep=False)


@pytest.mark.asyncio
async def test_a_token_that_cannot_be_made_is_asked_for_again(fake, monkeypatch):
    token, wrong = fake.tokens.token, [Unprocessable("The store is read-only.")]

    async def failing(host_id):
        if wrong:
            raise wrong.pop()
        return await token(host_id)

    monkeypatch.setattr(fake.tokens, "token", failing)
    provider = fake.provider(max_hosts=1)
    await up(provider, fake, 1)
    assert wrong == []
    await provider.close(keep=False)


@pytest.mark.asyncio
async def test_an_end_that_is_known_is_announced_when_it_is_near(fake):
    provider = fake.provider(max_hosts=1)
    notices = provider.notices()
    (first,) = await up(provider, fake, 1)
    fake.machines[first] = Provided(first, ProvidedState.UP, "", time.time() + 3600)
    await until_async(lambda: _until(provider, first), "the end to be known")
    waiting = asyncio.ensure_future(anext(notices))
    assert not (await asyncio.wait([waiting], timeout=0))[0]
    fake.machines[first] = Provided(first, ProvidedState.UP, "", time.time() + 100)
    notice = await waiting
    assert (notice.id, notice.why) == (first, "Its time is over.")
    assert 90 < notice.seconds <= 100
    await provider.close(keep=False)
    assert [each async for each in notices] == []


@pytest.mark.asyncio
async def test_only_the_last_machines_that_are_gone_are_reported(fake, monkeypatch):
    monkeypatch.setattr(level, "_MOST_GONE", 2)
    provider = fake.provider(max_hosts=1)
    ids = []
    for _ in range(4):
        (host_id,) = await up(provider, fake, 1)
        ids.append(host_id)
        await provider.release(host_id, "idle")
        await gone(provider, host_id)
    await all_up(provider, fake, 1)
    there = [each.id for each in await provider.hosts() if each.state is ProvidedState.GONE]
    assert there == ids[-2:]
    await provider.close(keep=False)


@pytest.mark.asyncio
@pytest.mark.long
async def test_ssh_passes_over_a_machine_that_it_cannot_reach(ssh):
    provider = ssh.provider(hosts=["nowhere.invalid", "beta.lab"], max_hosts=1)
    (host_id,) = await up(provider, ssh, 1)
    assert host_id.startswith(f"{ssh.mark}-beta-lab-")
    failed = [each for each in await provider.hosts() if each.state is ProvidedState.GONE]
    assert "nowhere.invalid" in failed[0].why
    await provider.close(keep=False)


@pytest.mark.asyncio
@pytest.mark.long
async def test_an_agent_that_ends_while_ssh_is_away_is_gone_when_it_is_back(ssh):
    provider = ssh.provider(max_hosts=1)
    (first,) = await up(provider, ssh, 1)
    ssh.break_()
    await until_async(lambda: _why(provider, first), "the session to be lost")
    os.kill(ssh.agents()[first]["pid"], signal.SIGKILL)
    ssh.heal()
    assert (await gone(provider, first)).why == "Its agent has ended."
    await all_up(provider, ssh, 1)
    await provider.close(keep=False)


@pytest.mark.asyncio
@pytest.mark.long
async def test_a_killed_server_leaves_the_agent_and_no_ssh(ssh):
    server = _server(ssh)
    await until_async(ssh.agents, "the agent")
    (host_id,) = ssh.agents()
    ((pid, name),) = _below(server.pid)
    assert name == "ssh"
    server.kill()
    server.wait()
    await until_async(lambda: not os.path.exists(f"/proc/{pid}"), "ssh to end")
    assert set(ssh.agents()) == {host_id}
    provider = ssh.provider()
    assert await up(provider, ssh, 1) == {host_id}
    await provider.close(keep=False)
    await until_async(lambda: not ssh.agents(), "the agent to end")


@pytest.mark.asyncio
@pytest.mark.long
async def test_slurm_keeps_no_token(slurm):
    provider = slurm.provider(max_hosts=1)
    (host_id,) = await up(provider, slurm, 1)
    spool = slurm.folder / "spool"
    assert spool.stat().st_mode & 0o777 == 0o700
    assert sorted(path.suffix for path in spool.glob(f"{host_id}.*")) == [".log", ".up"]
    token = slurm.tokens.given[host_id].encode()
    files = [path for path in slurm.folder.rglob("*") if path.is_file() and path.parent != slurm.notes]
    assert [path for path in files if token in path.read_bytes()] == []
    await provider.close(keep=False)


@pytest.mark.asyncio
async def test_kubernetes_pods_are_the_template_with_a_secret_of_their_own(kubernetes):
    provider = kubernetes.provider(max_hosts=1)
    (host_id,) = await up(provider, kubernetes, 1)
    (pod,) = (body for method, path, body in kubernetes.requests if (method, path[-5:]) == ("POST", "/pods"))
    assert pod["metadata"]["name"] == host_id
    assert pod["metadata"]["labels"] == {"team": "vision", "edt.host": host_id, "edt.mark": kubernetes.mark}
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert (spec["priorityClassName"], spec["restartPolicy"]) == ("low", "Never")
    assert spec["terminationGracePeriodSeconds"] == 120
    assert container["image"] == "registry.example.org/edt:1"
    assert "args" not in container
    assert kubernetes.tokens.given[host_id] not in str(pod)
    (secret,) = kubernetes.secrets.values()
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert secret["stringData"] == {"token": kubernetes.tokens.given[host_id]}
    await provider.close(keep=False)
    await until_async(lambda: not kubernetes.agents(), "the agent to end")


@pytest.mark.asyncio
async def test_kubernetes_reports_what_the_cluster_answers(kubernetes):
    kubernetes.nodes = False
    provider = kubernetes.provider(max_hosts=1)
    await provider.want(Wish(hosts=1))
    (first,) = await until_async(lambda: _in(provider, ProvidedState.ASKED), "the pod to wait")
    await until_async(lambda: _why(provider, first), "the reason")
    assert "Insufficient nvidia.com/gpu" in (await reported(provider, first)).why
    assert first not in kubernetes.tokens.given, "a pod without a node has no token"
    kubernetes.refused["POST secrets"] = 'secrets is forbidden: User "edt" cannot create resource "secrets"'
    kubernetes.nodes = True
    await until_async(lambda: "cannot create resource" in provider.trouble, "the refusal")
    kubernetes.refused.clear()
    await all_up(provider, kubernetes, 1)
    await provider.close(keep=False)


@pytest.mark.asyncio
@pytest.mark.long
async def test_ray_still_has_the_private_names_that_are_used(ray):
    found = ray.script(
        "import importlib.util, json, sys, ray\n"
        "spec = importlib.util.spec_from_file_location('ray_child', sys.argv[1])\n"
        "child = importlib.util.module_from_spec(spec); spec.loader.exec_module(child)\n"
        "ray.init(address=sys.argv[2], log_to_driver=False, logging_level='ERROR')\n"
        "free = child.free_resources().values()\n"
        "print(json.dumps([child.draining_nodes(), sorted(each.get('CPU', 0) for each in free)]))",
        str(level.__file__).replace("level.py", "ray_child.py"),
        ray.address,
    )
    draining, free = json.loads(found)
    assert isinstance(draining, dict)
    assert len(free) >= 2


@pytest.mark.asyncio
@pytest.mark.long
async def test_an_agent_ends_in_order_when_its_ray_actor_is_killed(ray):
    provider = ray.provider(max_hosts=1)
    (first,) = await up(provider, ray, 1)
    agent = ray.agents()[first]
    binding = _parent(agent["pid"])
    os.kill(_parent(binding), signal.SIGKILL)
    await until_async(lambda: ray.ended(first) == "SIGTERM", "the agent to be ended")
    await gone(provider, first)
    (second,) = await all_up(provider, ray, 1)
    os.kill(_parent(ray.agents()[second]["pid"]), signal.SIGKILL)
    await until_async(lambda: ray.ended(second) == "SIGTERM", "the agent to be ended by the kernel")
    await provider.close(keep=False)


def _parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


async def _in(provider, state):
    found = await states(provider)
    return list(found) if set(found.values()) == {state} else None


async def _why(provider, host_id):
    return (await reported(provider, host_id)).why


async def _until(provider, host_id):
    return (await reported(provider, host_id)).until


def _server(ssh):
    command = [sys.executable, "-c", _SERVER, ssh.tokens.python, json.dumps(ssh.settings()), ssh.mark]
    return subprocess.Popen(command)


def _below(pid):
    """Return the pids and names of a process's children."""
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [(each, Path(f"/proc/{each}/comm").read_text().strip()) for each in pids]
