"""The names of what can be asked for: streams of a log, parts of a result."""

from __future__ import annotations

STREAMS = ("all", "driver", "stdout", "stderr", "elog", "worker")
PARTS = ("model", "checkpoint", "log", "all")
