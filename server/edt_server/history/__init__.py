"""Own the past as it is shown: the allocation timeline, a job's story and the data of pictures, from one event list.

Never: events of its own. It reads what the ledger has written.

Read first: `timeline.py`, then `story.py`.
"""

from edt_server.history import picture_data
from edt_server.history.drawings import Drawings, present
from edt_server.history.story import describe
from edt_server.history.timeline import MOST_POINTS, TimelineFeed

__all__ = ["MOST_POINTS", "Drawings", "TimelineFeed", "describe", "picture_data", "present"]
