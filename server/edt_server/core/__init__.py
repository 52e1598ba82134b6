"""Own the scheduling rule: who gets how many slots. `Core.apply(event, now) → instructions` is the whole interface.

Never: a clock, I/O, a thread or randomness. The service, the simulator and the tests run the same object, and a replay
of its events gives an equal digest.

Read first: `core.py` (the state machine), then `rule.py` (the rule) and `turns.py` (who runs when not everyone can).
"""

__all__ = ["core", "events", "instructions", "snapshot"]
