"""A membership machine and what it says: events in, in the words of what happens to a job."""

from edt_sdk.schemas.wire import link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines.events import (
    DRIVER,
    Allocated,
    Exited,
    Gather,
    Gathered,
    LinkLost,
    Received,
    SendMessage,
    SendReport,
    Started,
)
from edt_server.supervisor.state_machines.membership import JobMembership


class Story:
    """Feeds a machine and keeps what it answered to the last event."""

    def __init__(self, history=None, *, patient=False, standbys=0, home=""):
        self.hosts = {}  # of slots, others are on h
        self.patient = patient  # otherwise nobody who is ready waits for others
        self.machine = JobMembership(interpreter="/opt/python", history=history, standbys=standbys, home=home)
        self.reports = []
        self.last = []

    def __call__(self, event):
        self.last = self.machine.apply(event)
        for gather in [each for each in self.last if isinstance(each, Gather) and not self.patient]:
            self.last = [*self.last, *self.machine.apply(Gathered(gather.generation))]
        self.reports += [each.report for each in self.last if isinstance(each, SendReport)]
        return self.last

    def allocate(self, version, *slots, asked=0, device="cpu", budget=None, apart=()):
        return self(Allocated(version, tuple(self.slot(slot, device) for slot in slots), asked, budget, apart))

    def slot(self, number, device="cpu"):
        return Slot(id=number, host=self.hosts.get(number, "h"), device=device)

    def say(self, worker, message):
        return self(Received(worker, message))

    def driver(self):
        self(Started(DRIVER, 10))
        self.say(DRIVER, link.DriverHello(pid=10))

    def train(self, training=0, shards=4):
        return self.say(DRIVER, link.TrainRequest(training=training, payload="/p", shards=shards, epochs=2))

    def hello(self, worker):
        self(Started(worker, 100 + worker))
        message = link.WorkerHello(worker=worker, pid=200 + worker, host="h", store_port=3000 + worker)
        return self.say(worker, message)

    def ready(self, worker, training=0):
        return self.say(worker, link.WorkerReady(worker=worker, training=training))

    def joined(self, worker, generation, update=0):
        return self.say(worker, link.Joined(worker=worker, generation=generation, update=update))

    def broken(self, worker, generation, update=0):
        return self.say(worker, link.Broken(worker=worker, generation=generation, update=update))

    def left(self, worker, generation, update=0):
        return self.say(worker, link.Left(worker=worker, generation=generation, update=update))

    def exit(self, process, code=0, *, signals=(), words=None, updates=None):
        self(LinkLost(process, "it closed the connection"))
        return self(Exited(process, code, signals, words, updates))

    def held(self, worker, generation, epoch=1):
        return self.say(worker, link.Held(worker=worker, training=0, generation=generation, epoch=epoch))

    def validated(self, worker, epoch, training=0):
        message = link.EpochMeasured(worker=worker, training=training, epoch=epoch, loss=0.5, accuracy=None, metrics={})
        return self.say(worker, message)

    def progress(self, worker, update, training=0):
        return self.say(
            worker,
            link.Progress(worker=worker, training=training, update=update, total_updates=99, epoch=0, epochs=1),
        )

    def kill(self, process, updates=None):
        return self.exit(process, -9, updates=updates)

    def running(self, *slots, **allocation):
        """A training with one member in each slot."""
        self.allocate(1, *slots, **allocation)
        self.driver()
        for worker in range(len(slots)):
            self.hello(worker)
        self.train()
        for generation, worker in enumerate(range(len(slots)), start=1):
            self.ready(worker)
            for member in range(worker + 1):
                self.joined(member, generation)

    def told(self, kind):
        return [each for each in self.last if isinstance(each, SendMessage) and isinstance(each.message, kind)]

    def of(self, kind):
        return [each for each in self.last if isinstance(each, kind)]


def members(generation):
    return [(member.worker, member.fresh) for member in generation.members]


def told_of(story):
    """The one generation of the last answer and who was told."""
    told = story.told(link.Generation)
    assert len({id(each.message) for each in told}) == 1
    return told[0].message.number, members(told[0].message), [each.process for each in told]
