"""The server's end of a control channel, whose service writes down what it hears."""

from edt_sdk.schemas.wire.control import (
    PROTOCOL,
    Welcome,
)
from edt_server.channel.control import ControlServer


class Service:
    """Callbacks that write down what they hear."""

    def __init__(self, folder):
        self.folder = folder
        self.heard = []
        self.connected = []
        self.answer = Welcome(protocol=PROTOCOL, acknowledged=0)
        self.fail_on = set()
        self.fail_with = RuntimeError("the store is busy")
        self.then_send = None
        self.control = self.server()

    def server(self, hosts=None):
        return ControlServer(
            self.folder,
            on_hello=self.hello,
            on_report=self.report,
            on_progress=lambda job, progress: self.heard.append((job, progress)),
            on_connected=self.note_connected,
            hosts=hosts,
        )

    async def note_connected(self, job):
        self.connected.append(job)

    async def hello(self, job, hello):
        self.heard.append((job, hello))
        return self.answer

    async def report(self, job, report):
        if report.number in self.fail_on:
            self.fail_on.discard(report.number)
            raise self.fail_with
        self.heard.append((job, report))
        if self.then_send is not None:
            assert self.control.send(job, self.then_send)

    def of(self, kind):
        return [message for _, message in self.heard if isinstance(message, kind)]
