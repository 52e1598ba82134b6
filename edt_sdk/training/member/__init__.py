"""Own one member of a training: its loop, its membership in each generation, its link to the supervisor.

Never: arithmetic of an update, which is `update/`.

Read first: `participant.py`, then `loop.py`.
"""

__all__ = [
    "heartbeat",
    "leaving",
    "link",
    "loop",
    "membership",
    "model_zip",
    "participant",
    "parts",
    "previous_zygote",
    "progress",
    "script_worker",
    "training_state",
]
