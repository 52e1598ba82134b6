"""Own the loop that people keep: `import edt_sdk.elastic as edt`.

A script gives its models, optimizers and whatever else has a state to `elastic()`, and takes epochs and updates from
what it returns. In a job it runs in each worker, and the job grows and shrinks meanwhile. Outside a job it is a plain
training with the same bits.

Never: the engine itself, which is `edt_sdk.training`.

Read first: `run.py`, then `worker_side.py`.
"""

from __future__ import annotations

from edt_sdk.elastic.batches import order_of, updates_in
from edt_sdk.elastic.begin import elastic
from edt_sdk.elastic.lockstep import Strand, in_lockstep
from edt_sdk.elastic.run import ElasticRun
from edt_sdk.elastic.sharded import Sharded
from edt_sdk.elastic.sides import Moved
from edt_sdk.elastic.stream import Stream, stream
from edt_sdk.elastic.update import Update

__all__ = [
    "ElasticRun",
    "Moved",
    "Sharded",
    "Strand",
    "Stream",
    "Update",
    "elastic",
    "in_lockstep",
    "order_of",
    "stream",
    "updates_in",
]
