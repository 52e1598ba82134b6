"""A stand-in for the supervisor: the other end of the link, driven by a test. Its children are real processes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edt_sdk.schemas.wire import link as wire
from edt_sdk.schemas.wire.context import JobContext, WorkerContext, to_environ
from edt_sdk.training.user import payload
from edt_sdk.training.user.payload import Training
from tests.training.forked import Process, fork

DEADLINE = 180
COMPAT = Path(payload.__file__).parents[2] / "compat"


@dataclass
class Child:
    process: Process
    said: Path
    connection: socket.socket | None = None
    inbox: list[Any] = field(default_factory=list)
    worker: int | None = None

    @property
    def text(self) -> str:
        return self.said.read_text()


class StandIn:
    """One job: its folders, its socket, and the processes it starts."""

    def __init__(
        self,
        *,
        main: str = "main.py",
        args: Sequence[str] = (),
        seed: int = 3,
        threads: int = 1,
        memory: bool = False,
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="edt-"))
        if memory:
            (self.root / "memory").mkdir()
        self.job = JobContext(
            job_id="job",
            owner="ann",
            data_dir=str(self.root),
            link=str(self.root / "link"),
            main=main,
            code_dir="code",
            args=tuple(args),
            seed=seed,
            mode="exact",
            threads_per_slot=threads,
            max_workers=8,
            memory_dir=str(self.root / "memory") if memory else "",
        )
        self.paths = self.job.paths
        self.code = self.paths.code_dir("code")
        for folder in (self.code, self.paths.job_dir, self.paths.train_dir):
            folder.mkdir(parents=True)
        self.children: dict[str, Child] = {}
        self.changed = threading.Condition()
        self.generations: dict[int, wire.Generation] = {}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.job.link)
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
        for child in self.children.values():
            if child.process.poll() is None:
                child.process.kill()
            child.process.wait()
            if child.connection is not None:
                child.connection.close()
        shutil.rmtree(self.root)

    # --- processes ----------------------------------------------------------------------------------------------------

    def start_driver(self, **environ: str) -> Child:
        return self._start("driver", "edt_sdk.training.driver", to_environ(self.job), environ)

    def start_worker(self, worker: int, interface: str = "127.0.0.1", **environ: str) -> Child:
        pulse = str(self.root / f"pulse-{worker}")
        own = WorkerContext(worker=worker, slot=worker, device="cpu", interface=interface, pulse=pulse)
        child = self._start(f"w{worker}", "edt_sdk.training.worker", to_environ(self.job, own), environ)
        child.worker = worker
        return child

    def _start(self, name: str, module: str, *environs: dict[str, str]) -> Child:
        path = os.pathsep.join([str(self.code), str(COMPAT / "job"), os.environ.get("PYTHONPATH", "")]).rstrip(
            os.pathsep
        )
        environ = dict(os.environ, PYTHONPATH=path, PYTHONWARNINGS="default")
        for more in environs:
            environ.update(more)
        said = self.root / f"{name}.log"
        with self.changed:  # it may call before it is known here
            child = self.children[name] = Child(fork(module, environ, self.code, said), said)
        return child

    def exit_code(self, name: str) -> int:
        try:
            return self.children[name].process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{name} does not end; {self._said()}")

    # --- messages -----------------------------------------------------------------------------------------------------

    def expect(self, name: str, kind: type[Any]) -> Any:
        """The next message of this kind from a child; fails when it fails or ends instead."""
        child = self.children[name]
        deadline = time.monotonic() + DEADLINE
        with self.changed:
            while True:
                for message in child.inbox:
                    if isinstance(message, kind):
                        child.inbox.remove(message)
                        return message
                failures = [m for c in self.children.values() for m in c.inbox if isinstance(m, wire.Failed)]
                if failures or time.monotonic() > deadline or (child.process.poll() is not None and not child.inbox):
                    pytest.fail(f"no {kind.__name__} from {name}; {failures}; {self._said()}")
                self.changed.wait(0.1)

    def send(self, name: str, message: Any) -> None:
        self._connection(name).sendall(wire.encode(message))

    def kill(self, *workers: int) -> None:
        """SIGKILL them, and wait until they are gone, as a supervisor does."""
        for worker in workers:
            self.children[f"w{worker}"].process.kill()
        for worker in workers:
            self.children[f"w{worker}"].process.wait()

    def hang_up(self, name: str) -> None:
        self._connection(name).shutdown(socket.SHUT_RDWR)

    # --- a training ---------------------------------------------------------------------------------------------------

    def pack(self, training: Training, *roots: Path, number: int = 0) -> None:
        payload.write(self.paths.payload(number), payload.pack(training, roots))

    def prepare(self, *workers: int, interface: str = "127.0.0.1") -> None:
        """Start these workers, on the host with this address, and wait until they are ready."""
        hellos = {}
        for worker in workers:
            self.start_worker(worker, interface)
        for worker in workers:
            hellos[worker] = self.expect(f"w{worker}", wire.WorkerHello)
            self.send(f"w{worker}", wire.Begin(training=0, payload=str(self.paths.payload(0))))
        for worker, hello in hellos.items():
            self.expect(f"w{worker}", wire.WorkerReady)
            self.children[f"w{worker}"].inbox.append(hello)

    def generation(
        self, number: int, *workers: int, budget: int | None = None, told: Sequence[int] | None = None
    ) -> None:
        """Announce a generation of these workers, survivors first. Only those of `told` hear of it for now, or all."""
        before = max(self.generations, default=None)
        old = [member.worker for member in self.generations[before].members] if before else []
        members = []
        for worker in sorted(workers, key=lambda w: (w not in old, old.index(w) if w in old else w)):
            hello = next(m for m in self.children[f"w{worker}"].inbox if isinstance(m, wire.WorkerHello))
            members.append(
                wire.Member(
                    worker=worker,
                    slot=worker,
                    pid=hello.pid,
                    host=hello.host,
                    store_port=hello.store_port,
                    fresh=worker not in old,
                )
            )
        self.generations[number] = wire.Generation(training=0, number=number, members=tuple(members), budget=budget)
        for worker in {*old, *workers} if told is None else told:
            if self.children[f"w{worker}"].process.poll() is None:
                self.send(f"w{worker}", self.generations[number])

    def joined(self, number: int) -> None:
        """Wait until all of a generation are in."""
        for member in self.generations[number].members:
            while self.expect(f"w{member.worker}", wire.Joined).generation != number:
                pass

    # --- inside -------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        child: Child | None = None
        try:
            for line in connection.makefile("rb"):
                message = wire.decode_upward(line)
                if isinstance(message, wire.DriverHello):
                    child = self._adopt("driver", connection)
                elif isinstance(message, wire.WorkerHello):
                    child = self._adopt(f"w{message.worker}", connection)
                assert child is not None, "a hello comes first"
                with self.changed:
                    child.inbox.append(message)
                    self.changed.notify_all()
        except OSError:
            pass

    def _adopt(self, name: str, connection: socket.socket) -> Child:
        with self.changed:
            child = self.children[name]
            child.connection = connection
            return child

    def _connection(self, name: str) -> socket.socket:
        """The connection of a child; waits for its hello, which may come after it has called elsewhere."""
        child = self.children[name]
        with self.changed:
            self.changed.wait_for(lambda: child.connection is not None, DEADLINE)
        if child.connection is None:
            pytest.fail(f"no hello from {name}; {self._said()}")
        return child.connection

    def _said(self) -> str:
        return "\n".join(f"--- {name} ({c.process.poll()}): {c.text[-3000:]}" for name, c in self.children.items())
