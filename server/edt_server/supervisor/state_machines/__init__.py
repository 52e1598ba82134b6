"""Own what a supervisor decides, as pure state machines: events in, instructions out.

Never: a clock, I/O or a process. `../main.py` carries instructions out.

Read first: `events.py` (what is heard and answered), then `membership.py` (elastic jobs).
"""

__all__ = ["elastic_agents", "events", "history", "membership", "plain", "replicas", "standbys", "watchdog", "wording"]
