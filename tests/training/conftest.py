"""Fixtures of tests/training: real processes that form real groups."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

from edt_sdk.training.exchange.group import open_store
from tests.training import forked

DEADLINE = 180


@pytest.fixture(scope="session", autouse=True)
def one_zygote():
    """The zygote that all tests of this process share ends with them."""
    yield
    forked.end()


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Processes:
    """`world` processes run `job(rank, port, *args)`; port is that of a store on the loopback interface.

    Forked, since importing torch again would take a second a process; therefore the store is in a process of its own: a
    fork beside its thread could copy a lock that this thread holds for a moment.
    """

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("fork")

    def __call__(self, world: int, job: Callable[..., Any], *args: Any, may_die: bool = False) -> list[Any]:
        """What each rank returned, None for one that died when `may_die`."""
        ours, theirs = self._context.Pipe()
        keeper = self._context.Process(target=_keep_store, args=(theirs,))
        started = [keeper]
        try:
            keeper.start()
            assert ours.poll(DEADLINE)
            port = ours.recv()
            pipes = [self._context.Pipe(duplex=False) for _ in range(world)]
            ranks = [
                self._context.Process(target=_run, args=(pipes[rank][1], job, rank, port, *args))
                for rank in range(world)
            ]
            for process in ranks:
                process.start()
                started.append(process)
            for _, end in pipes:
                end.close()
            return [self._result(process, pipe, may_die) for process, (pipe, _) in zip(ranks, pipes, strict=True)]
        finally:
            for process in started:
                if process.is_alive():
                    os.kill(process.pid, signal.SIGKILL)
                process.join()

    @staticmethod
    def _result(process: Any, pipe: Any, may_die: bool) -> Any:
        if not pipe.poll(DEADLINE):
            raise TimeoutError(f"no answer from process {process.pid} within {DEADLINE} s")
        try:
            kind, value = pipe.recv()
        except EOFError:
            if may_die:
                return None
            raise RuntimeError(f"process {process.pid} died") from None
        if kind == "error":
            raise RuntimeError(value)
        process.join(DEADLINE)
        return value


def _keep_store(pipe: Any) -> None:
    store, port = open_store("127.0.0.1")
    pipe.send(port)
    signal.pause()  # until the end of the test kills it
    del store


def _run(pipe: Any, job: Callable[..., Any], rank: int, port: int, *args: Any) -> None:
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(DEADLINE - 15, file=sys.__stderr__)  # where it hangs, should it hang
    try:
        answer = ("value", job(rank, port, *args))
    except BaseException:
        answer = ("error", traceback.format_exc())
    pipe.send(answer)


@pytest.fixture
def processes():
    return Processes()
