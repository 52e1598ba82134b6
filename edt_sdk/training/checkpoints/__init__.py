"""Own what outlives the processes of a training: rolling checkpoints, the memory mirror, WMLA's model files.

Never: the decision when one is due, which `member/` makes.

Read first: `rolling.py`, then `mirror.py`.
"""

__all__ = ["durable", "model_files", "rolling"]
