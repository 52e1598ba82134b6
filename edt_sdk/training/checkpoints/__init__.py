"""Own what outlives the processes of a training: rolling checkpoints, the memory mirror, files of models.

Never: the decision whether a training writes or resumes, which `member/` makes.

Read first: `rolling.py`, then `mirror.py`.
"""

__all__ = ["ckpt", "durable", "exports", "model_files", "onnx_file", "rolling"]
