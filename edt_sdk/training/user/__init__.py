"""Own everything the user passes in: the payload of a `train()` call, data sets, callbacks, schedules.

Never: the engine. It calls user code and returns the result.

Read first: `payload.py`, then `hooks.py`.
"""

__all__ = [
    "custom_test",
    "datasets",
    "explanation",
    "hooks",
    "imports",
    "logging_hooks",
    "lr_schedule",
    "own_modules",
    "own_state",
    "payload",
    "progress_lines",
    "scaleup",
]
