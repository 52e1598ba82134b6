"""Fixtures of tests/training: real processes that form real groups."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from edt_sdk.training.group import open_store

DEADLINE = 90


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Processes:
    """`world` processes run `job(rank, port, *args)`; port is that of a store on the loopback interface."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("fork")  # importing torch again would take a second a process

    def __call__(self, world: int, job: Callable[..., Any], *args: Any, may_die: bool = False) -> list[Any]:
        """What each rank returned, None for one that died when `may_die`."""
        store, port = open_store("127.0.0.1")
        pipes = [self._context.Pipe(duplex=False) for _ in range(world)]
        processes = [
            self._context.Process(target=_run, args=(pipes[rank][1], job, rank, port, *args)) for rank in range(world)
        ]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
            for process in processes:
                process.start()
        for _, theirs in pipes:
            theirs.close()
        try:
            return [self._result(process, ours, may_die) for process, (ours, _) in zip(processes, pipes, strict=True)]
        finally:
            for process in processes:
                if process.is_alive():
                    os.kill(process.pid, signal.SIGKILL)
                process.join()
            del store

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


def _run(pipe: Any, job: Callable[..., Any], rank: int, port: int, *args: Any) -> None:
    torch.set_num_threads(1)
    try:
        answer = ("value", job(rank, port, *args))
    except BaseException:
        answer = ("error", traceback.format_exc())
    pipe.send(answer)


@pytest.fixture
def processes():
    return Processes()
