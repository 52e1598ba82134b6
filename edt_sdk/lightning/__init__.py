"""Own `ElasticStrategy`: train a LightningModule as it is, with workers that come and go.

`Trainer(strategy=ElasticStrategy())` keeps Lightning's loops, callbacks and loggers. What a batch is computed with is
`edt_sdk.elastic`.

Never: the engine itself, and anything that an import of `edt_sdk` alone would load.

Read first: `strategy.py`, then `updates.py`.
"""

from __future__ import annotations

try:
    import lightning  # noqa: F401
except ImportError as error:
    raise ImportError("edt_sdk.lightning needs Lightning: pip install jupyter-edt[lightning]") from error

from edt_sdk.lightning.strategy import ElasticStrategy

__all__ = ["ElasticStrategy"]
