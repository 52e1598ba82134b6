"""Serve the supervisor's end of the control channel: deliver the journal, however often the server restarts.

Every report is in the journal before it is sent, and is repeated until it is acknowledged (decision 003). The server's
endpoint and key are read from its address file at every connection attempt, so a replaced server is found. Progress is
sent at most twice a second, and the newest is always sent in the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from edt_sdk.schemas.job import JobProgress
from edt_sdk.schemas.wire import control
from edt_server.messaging import Conversation, ConversationLost, read_struct, send_now
from edt_server.supervisor.journal import Journal
from edt_server.system.steady_clock import SteadyClock

log = logging.getLogger(__name__)

PROGRESS_INTERVAL = 0.5
REPEAT_AFTER = 1.0
HELLO_PATIENCE = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Reporter:
    """The connection to the present server.

    `holding` returns the slots to name in a hello. `on_message` gets every message of the server except Welcome, and an
    Ack for a Welcome.
    """

    def __init__(
        self,
        orders: control.Launch,
        identity: control.ProcessIdentity,
        journal: Journal,
        clock: SteadyClock,
        *,
        holding: Callable[[], tuple[int, ...]],
        on_message: Callable[[control.ToSupervisor], None],
    ) -> None:
        self._orders = orders
        self._identity = identity
        self._journal = journal
        self._clock = clock
        self._holding = holding
        self._on_message = on_message
        self._context = zmq.asyncio.Context()
        self._socket: zmq.asyncio.Socket | None = None
        self._progress: JobProgress | None = None
        self._progress_due = False
        self._progress_sent = float("-inf")
        self._delivered = asyncio.Condition()

    def report(self, number: int, report: control.Report) -> None:
        """Write a report to the journal and send it when a server is connected.

        The job's end is completed with the newest progress.
        """
        self._flush_progress()
        if isinstance(report, control.JobEnded):
            report = msgspec.structs.replace(report, progress=self._progress)
        numbered = control.Numbered(number=number, time=self._clock.now(), report=report)
        # In the journal first: a server may act on a report although this process dies at this moment (decision 003).
        self._journal.append(numbered)
        self._send(control.encode(numbered))

    def progress(self, progress: JobProgress) -> None:
        """Send progress soon. Earlier progress that was not sent yet is dropped."""
        loop = asyncio.get_running_loop()
        waiting, self._progress_due = self._progress_due, True
        self._progress = progress
        if not waiting:
            loop.call_at(max(loop.time(), self._progress_sent + PROGRESS_INTERVAL), self._flush_progress)

    async def delivered(self) -> None:
        """Return when every report is acknowledged."""
        async with self._delivered:
            await self._delivered.wait_for(lambda: self._journal.delivered)

    async def run(self) -> None:
        """Keep the connection up until cancelled."""
        pause = _FIRST_PAUSE
        try:
            while True:
                # Read each time: after a restart or a takeover another server has written another address.
                address = read_struct(Path(self._orders.control_file), control.ServerAddress)
                if address is not None and await self._converse(address):
                    pause = _FIRST_PAUSE
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
        finally:
            self._context.destroy(linger=0)

    async def _converse(self, address: control.ServerAddress) -> bool:
        """Run a connection from hello to loss. Return True when the server answered."""
        greeted = asyncio.Event()
        keys = self._orders.public_key, self._orders.secret_key
        try:
            conversation = Conversation(self._context, address, keys, linger=0, silent=self._orders.host_silent)
        except zmq.ZMQError as wrong:
            log.warning("no connection to %s: %s", address.endpoint, wrong)
            return False
        tasks = [
            asyncio.ensure_future(self._talk(conversation, greeted)),
            asyncio.ensure_future(self._insist(greeted, address)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except ConversationLost as wrong:
            log.debug("ended with %s", wrong)
        finally:
            self._socket = None
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                await conversation.close()
        if greeted.is_set():
            log.info("connection to the server lost")
        return greeted.is_set()

    async def _talk(self, conversation: Conversation, greeted: asyncio.Event) -> None:
        hello = control.SupervisorHello(
            protocol=control.PROTOCOL,
            attempt=self._orders.attempt,
            identity=self._identity,
            holding=self._holding(),
            last_report=self._journal.last,
        )
        await conversation.socket.send(control.encode(hello))
        while True:
            # Without a timeout: one that expires while a message arrives would lose the message.
            frames = await conversation.receive()
            try:
                message = control.decode_to_supervisor(frames[0])
            except msgspec.MsgspecError as wrong:
                log.warning("message of the server that is none: %s", type(wrong).__name__)
                continue
            if isinstance(message, control.Welcome):
                log.info("connected to the server, reports up to %d are committed", message.acknowledged)
                greeted.set()
                self._socket = conversation.socket
                self._journal.welcome(message.acknowledged)
                await self._acknowledged(message.acknowledged)
                self._repeat()
                # What was sent to the last server may be lost with it.
                self._progress_due = self._progress is not None
                self._flush_progress()
                continue
            if isinstance(message, control.Ack):
                await self._acknowledged(message.number)
            else:
                self._on_message(message)

    async def _insist(self, greeted: asyncio.Event, address: control.ServerAddress) -> None:
        """Drop a server that does not answer a hello, and retry reports that a connected server leaves unacknowledged.

        Drop also a server that was replaced by another: it may be stopped, and keep the connection open.
        """
        try:
            async with asyncio.timeout(HELLO_PATIENCE):
                await greeted.wait()
        except TimeoutError:
            return
        oldest = 0
        while True:
            await asyncio.sleep(REPEAT_AFTER)
            if read_struct(Path(self._orders.control_file), control.ServerAddress) not in (None, address):
                return
            unanswered = self._journal.open_reports()
            # Retry only when the oldest report is still unanswered after a whole interval: it may just be on its way.
            if unanswered and unanswered[0].number == oldest:
                self._repeat()
            oldest = unanswered[0].number if unanswered else 0

    async def _acknowledged(self, number: int) -> None:
        self._journal.acknowledge(number)
        self._on_message(control.Ack(number=self._journal.acknowledged))
        async with self._delivered:
            self._delivered.notify_all()

    def _repeat(self) -> None:
        for report in self._journal.open_reports():
            self._send(control.encode(report))

    def _flush_progress(self) -> None:
        if self._progress is not None and self._progress_due and self._socket is not None:
            self._send(control.encode(control.ProgressReport(progress=self._progress)))
            self._progress_due = False
            self._progress_sent = asyncio.get_running_loop().time()

    def _send(self, data: bytes) -> None:
        if self._socket is not None:
            wrong = send_now(self._socket, data)
            if wrong is not None:
                log.warning("report not sent: %s", wrong)  # and repeated later
