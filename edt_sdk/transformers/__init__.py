"""Own the elastic forms of Hugging Face's trainers: `from edt_sdk.transformers import ElasticTrainer`.

The loop is the Trainer's own. Its updates, evaluations and checkpoints are calls of `edt_sdk.elastic`, so a job grows
and shrinks meanwhile.

Never: a loop, an optimizer or a file format of its own.

Read first: `trainer.py`, then `moving_state.py`.
"""

from __future__ import annotations

try:
    import transformers
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "edt_sdk.transformers needs Hugging Face's transformers: pip install 'jupyter-edt[transformers]'"
    ) from error
if not hasattr(transformers.Trainer, "_run_epoch"):
    raise ImportError(
        f"edt_sdk.transformers needs transformers 5.24 or newer, not {transformers.__version__}: "
        "pip install 'jupyter-edt[transformers]'"
    )

from edt_sdk.transformers.trainer import ElasticSeq2SeqTrainer, ElasticTrainer

__all__ = ["ElasticSeq2SeqTrainer", "ElasticTrainer"]
