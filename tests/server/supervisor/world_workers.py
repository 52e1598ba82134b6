"""The workers of the random world: each takes its time to hear, to switch and to die, and does what it was told."""

from collections import deque

from edt_sdk.schemas.wire import link
from edt_server.supervisor.state_machines.events import Exited, LinkLost, Received


class Process:
    def __init__(self, worker, slot):
        self.worker, self.slot = worker, slot
        self.inbox = deque()
        self.said_hello = False
        self.group = 0
        """Number of the generation whose group it is in, 0 for none."""
        self.newest = None
        """The newest generation it was told."""
        self.torn = False
        """Somebody of its group is gone, and it does not know yet."""
        self.broken = False
        """It said so, and waits for a newer generation."""
        self.told_to_end = False
        self.lost = False
        """Its link is closed; its exit is still to be seen."""


class WorldOfWorkers:
    """The part of `World` that does what workers do."""

    def group_is_complete(self):
        return (
            self.in_training
            and self.generation is not None
            and self.generation.training == self.trainings
            and bool(self.generation.members)
            and all(
                (process := self.workers.get(member.worker)) is not None
                and process.group == self.generation.number
                and not process.torn
                and not process.lost
                and not process.told_to_end
                for member in self.generation.members
            )
        )

    def worker_actions(self, process):
        if process.lost:
            yield lambda: self.reap(process, -9, (9,) if process.told_to_end else ())
        elif process.told_to_end:
            yield lambda: self.exit(process, -15, (15,))
        elif not process.said_hello:
            yield lambda: self.hello(process)
        elif process.inbox:
            yield lambda: self.hear(process)
        elif process.torn:
            yield lambda: self.drop(process)
        elif self.wants_to_switch(process):
            yield lambda: self.switch(process)
        elif self.trained and process.group:
            yield lambda: self.exit(process, 0)

    def wants_to_switch(self, process):
        """At the boundary everybody of its group knows of a newer one; without a group, as soon as it does."""
        newest = process.newest
        if newest is None or newest.number <= process.group or self.trained:
            return False
        mates = [other for other in self.workers.values() if other.group == process.group]
        return (
            process.group == 0
            or process.broken
            or all(mate.newest is not None and mate.newest.number > mate.group for mate in mates)
        )

    def hello(self, process):
        process.said_hello = True
        self.feed(Received(process.worker, link.WorkerHello(worker=process.worker, pid=9, host="h", store_port=1)))

    def hear(self, process):
        message = process.inbox.popleft()
        if isinstance(message, link.Begin):
            self.feed(Received(process.worker, link.WorkerReady(worker=process.worker, training=message.training)))
        else:
            process.newest = message

    def switch(self, process):
        worker, generation = process.worker, process.newest
        process.broken = False
        if worker in [member.worker for member in generation.members]:
            process.group = generation.number
            present = {other.worker for other in self.workers.values() if not other.lost}
            process.torn = any(member.worker not in present for member in generation.members)
            if (generation.training, generation.number) == (self.generation.training, self.generation.number):
                self.to_join.discard(worker)
            self.feed(
                Received(worker, link.Joined(worker=worker, generation=generation.number, update=self.committed)),
            )
        else:
            process.group = 0
            self.feed(Received(worker, link.Left(worker=worker, generation=generation.number, update=self.committed)))
            if worker in self.workers and not process.lost:
                self.exit(process, 0)

    def drop(self, process):
        process.torn, process.broken = False, True
        generation = process.group
        self.feed(Received(process.worker, link.Broken(worker=process.worker, generation=generation, update=0)))

    def tear(self, generation):
        for process in self.workers.values():
            if process.group == generation and not process.lost:
                process.torn = not process.broken

    def kill(self, process):
        self.exit(process, -9, (9,) if process.told_to_end else ())

    def lose_link(self, process):
        process.lost = True
        self.mourn(process)
        self.feed(LinkLost(process.worker, "closed"))

    def exit(self, process, code, signals=()):
        self.lose_link(process)
        self.reap(process, code, signals)

    def mourn(self, process):
        """The others of its group see its sockets close."""
        if process.group and not self.trained:
            self.tear(process.group)
        if self.generation is not None:
            members = [member.worker for member in self.generation.members]
            if process.worker in members or (not members and process.worker in self.to_leave):
                self.broke = True

    def reap(self, process, code, signals=()):
        (self.workers if process.worker in self.workers else self.standbys).pop(process.worker)
        self.feed(Exited(process.worker, code, signals, updates=self.committed))
