"""Run `python -P ray_child.py <settings as JSON>`: the driver of Ray for the provider, in a process of its own.

Orders come as JSON lines on stdin, and each has one line as its answer on stdout. The program ends with its stdin. It
may run under another Python than the server's, so it imports Ray and the standard library alone.

An actor is named after its machine and never restarted, because Ray would restart it while the first one still runs on
a node that was cut off. Between the actor and the agent is a small process, which ends the agent when the actor is gone
for whatever reason: then its stdin ends. When that process is killed the kernel sends the agent a SIGTERM.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

NAMESPACE = "edt"
# Seconds for the answers of actors at one look, and for an actor that has lost its agent to be asked for the reason.
_LOOK, _LAST = 1.0, 10.0
_BINDING = """
import ctypes, os, signal, subprocess, sys, threading
libc = ctypes.CDLL(None)
def bind():
    libc.prctl(1, int(signal.SIGTERM), 0, 0, 0)  # PR_SET_PDEATHSIG
token = sys.stdin.buffer.readline()
agent = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, preexec_fn=bind, start_new_session=True)
def end(*_):
    agent.terminate()
    threading.Timer(float(sys.argv[1]), agent.kill).start()
def watch():
    sys.stdin.buffer.read()
    end()
signal.signal(signal.SIGTERM, end)
try:
    agent.stdin.write(token)
    agent.stdin.close()
except BrokenPipeError:
    pass  # it has ended
threading.Thread(target=watch, daemon=True).start()
code = agent.wait()
os._exit(code if code >= 0 else 128 - code)
"""


class HostActor:
    """The actor that holds a node, and starts the agent there when it gets a token."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def poll(self) -> dict[str, Any]:
        """Return the node, whether there is an agent, and its exit code once it has ended."""
        node = importlib.import_module("ray").get_runtime_context().get_node_id()
        process = self._process
        return {"node": node, "agent": process is not None, "code": None if process is None else process.poll()}

    def admit(self, command: list[str], token: str, grace: float) -> None:
        """Start the agent."""
        if self._process is not None:
            return  # by an earlier server
        # Ray sets the number of threads for the actor, and not for what an agent starts.
        environ = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        bound = [sys.executable, "-P", "-c", _BINDING, str(grace), *command]
        self._process = subprocess.Popen(bound, stdin=subprocess.PIPE, env=environ)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{token}\n".encode())
        self._process.stdin.flush()
        threading.Thread(target=self._leave, args=(self._process,), daemon=True).start()

    def stop(self) -> None:
        """End the agent in order, and then this actor."""
        if self._process is None:
            importlib.import_module("ray").actor.exit_actor()
        elif self._process.stdin is not None:
            self._process.stdin.close()

    @staticmethod
    def _leave(process: subprocess.Popen[bytes]) -> None:
        process.wait()
        time.sleep(_LAST)
        os._exit(0)  # without a server the node has to become free too


class RayDriver:
    """The actors with our mark, and the ids that wait for a node."""

    def __init__(self, how: dict[str, Any]) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._how = how
        self._waiting: list[str] = []
        self._actors: dict[str, Any] = {}
        self._polls: dict[str, Any] = {}
        self._known: dict[str, dict[str, Any]] = {}
        self._stopping: set[str] = set()
        self._requested: list[dict[str, float]] = []
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        self._ray.init(address=how["address"], namespace=NAMESPACE, **quiet)

    def look(self) -> dict[str, Any]:
        """Return all machines, after those that wait were placed on nodes that have come."""
        ray, draining = self._ray, draining_nodes()
        for name in ray.util.list_named_actors():
            if name.rpartition("-")[0] == self._how["mark"] and name not in self._actors:
                self._actors[name] = ray.get_actor(name)
        self._place(draining)
        self._request()
        for name, actor in self._actors.items():
            if name not in self._polls:
                self._polls[name] = actor.poll.remote()
        polls = list(self._polls.values())
        ready = set(ray.wait(polls, num_returns=len(polls), timeout=_LOOK)[0]) if polls else set()
        seen = {name: _state("asked", "No node of the Ray cluster is free.") for name in self._waiting}
        for name in list(self._actors):
            if self._polls[name] in ready:
                self._answered(name)
            seen[name] = self._seen(name, draining)
        return seen

    def start(self, id: str) -> None:
        """Have another machine, at the next look."""
        self._waiting.append(id)

    def admit(self, id: str, command: list[str], token: str) -> None:
        """Start a machine's agent."""
        if id in self._actors:
            self._actors[id].admit.remote(command, token, self._how["grace"])

    def stop(self, id: str) -> None:
        """End a machine."""
        self._stopping.add(id)
        if id in self._waiting:
            self._waiting.remove(id)
        elif id in self._actors and "node" in self._known.get(id, {}):
            self._actors[id].stop.remote()
        elif id in self._actors:
            self._ray.kill(self._actors[id])  # it has not answered yet
        self._request()  # a driver that ends after this leaves no request behind

    def _place(self, draining: dict[str, float]) -> None:
        ray, how = self._ray, self._how
        taken = {each.get("on") or each.get("node") for each in self._known.values()}
        free = free_resources()
        nodes = []
        for node in ray.nodes():
            has = node["Resources"]
            cpus, gpus = has.get("CPU", 0), has.get("GPU", 0)
            name = node["NodeID"]
            fits = cpus > 0 and cpus >= how["cpus"] and gpus >= how["gpus"]
            # Another program may hold a part of the node. Then the actor would wait.
            unused = free.get(name, {}).get("CPU", 0) >= cpus and free.get(name, {}).get("GPU", 0) >= gpus
            if node["Alive"] and fits and unused and name not in taken and name not in draining:
                nodes.append((name, cpus, gpus))
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        remote = ray.remote(HostActor)
        for name, cpus, gpus in nodes[: len(self._waiting)]:
            host = self._waiting.pop(0)
            self._known[host] = {"on": name}
            self._actors[host] = remote.options(
                name=host, lifetime="detached", max_restarts=0, num_cpus=cpus, num_gpus=gpus,
                scheduling_strategy=affinity(name, soft=False),
            ).remote()  # fmt: skip

    def _request(self) -> None:
        """Let Ray's autoscaler have a node for each machine. A request replaces the last one."""
        shape = {"CPU": self._how["cpus"] or 1.0, "GPU": self._how["gpus"]}
        bundle = {name: amount for name, amount in shape.items() if amount}
        bundles = [bundle] * (len(self._waiting) + len(self._actors.keys() - self._stopping))
        if bundles != self._requested:
            importlib.import_module("ray.autoscaler.sdk").request_resources(bundles=bundles)
            self._requested = bundles

    def _answered(self, name: str) -> None:
        known = self._known.setdefault(name, {})
        try:
            known.update(self._ray.get(self._polls.pop(name)))
        except self._ray.exceptions.RayActorError as wrong:
            known["gone"] = "Ray: " + (str(wrong).strip().splitlines() or ["the actor has died"])[0]
        else:
            if known["code"] is not None:
                known["gone"] = f"Its agent has ended with exit code {known['code']}."
                self._ray.kill(self._actors[name])

    def _seen(self, name: str, draining: dict[str, float]) -> dict[str, Any]:
        known = self._known.get(name, {})
        if "gone" in known:
            for each in (self._actors, self._known, self._polls):
                each.pop(name, None)
            return _state("gone", known["gone"])
        node = known.get("node", known.get("on"))
        if node in draining:
            return _state("draining", "Ray drains its node.", draining[node])
        if "node" not in known:
            return _state("asked", "Its actor has not started yet.")
        return _state("up" if known["agent"] else "starting")


def draining_nodes() -> dict[str, float]:
    """Return the nodes that Ray drains, with the time at which each is taken away. By a private name of Ray."""
    nodes = importlib.import_module("ray._private.state").state.get_draining_nodes()
    # Ray has 0 for a drain without a deadline.
    return {node: deadline / 1000 if deadline else time.time() + 120 for node, deadline in nodes.items()}


def free_resources() -> dict[str, dict[str, float]]:
    """Return what no program holds of each node. By a private name of Ray."""
    found: dict[str, dict[str, float]] = importlib.import_module("ray._private.state").available_resources_per_node()
    return found


def _state(state: str, why: str = "", until: float | None = None) -> dict[str, Any]:
    return {"state": state, "why": why, "until": until}


def main(argument: str) -> None:
    """Answer orders until there are no more."""
    # Whatever Ray prints goes to stderr, where the server keeps the last words.
    with os.fdopen(os.dup(0), encoding="utf-8") as orders, os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        driver: RayDriver | None = None
        for line in orders:
            order = json.loads(line)
            try:
                driver = driver or RayDriver(json.loads(argument))
                answer = {"is": getattr(driver, order.pop("do"))(**order)}
            except Exception as wrong:  # the loop has to survive, and the server shows what it was
                answer = {"error": (str(wrong).strip().splitlines() or [type(wrong).__name__])[0]}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
