"""Own the scheduling rule: how many slots each job gets. The interface is `Core.apply(event, now) → instructions`.

Never: a clock, I/O, a thread or randomness. The service, the simulator and the tests run the same object, and a replay
of its events gives an equal digest.

Read first: `core.py` (the state machine), then `rule.py` (the rule) and `turns.py` (the order when not all jobs fit).
"""

__all__ = ["core", "events", "instructions", "snapshot"]
