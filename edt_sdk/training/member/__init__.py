"""Own one member of a training: its loop, its membership in each generation, its link to the supervisor.

Never: arithmetic of an update, which is `update/`.

Read first: `loop.py`, then `membership.py`.
"""

__all__ = [
    "heartbeat",
    "leaving",
    "link",
    "loop",
    "membership",
    "model_zip",
    "onnx_export",
    "parts",
    "previous_zygote",
]
