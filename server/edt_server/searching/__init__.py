"""Own the decisions of a search for hyper-parameters: `SearchCore.apply(event) → changed trials, entries for its log`.

Never: a clock, I/O, a thread, a sampler, or randomness outside a preview. Equal searches decide equally,
whatever the order of arrival.

Read first: `core.py` (the state machine), then `rungs.py` and `lanes.py` (the two orders of decisions).
"""

from edt_server.searching.book import Trial
from edt_server.searching.past import AskValues, PastTrial

__all__ = ["AskValues", "PastTrial", "Trial", "core", "events", "preview", "replay"]
