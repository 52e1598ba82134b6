"""The names of the streams of a log and of the parts of a result that a client can ask for."""

from __future__ import annotations

STREAMS = ("all", "driver", "stdout", "stderr", "elog", "worker")
PARTS = ("model", "checkpoint", "log", "all")
