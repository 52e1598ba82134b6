"""Watching jobs live: tabs of widgets in a notebook, a line in a terminal.

`job_monitor.py` and `client_monitor.py` are the two monitors; `base.py` what they share, `rounds.py` the one thread
behind all of them, `kernel.py` what they need of IPython. A tab is a `page.py`; what is pure (log lines, facts, the
sentence of a consequence) has files of its own.
"""

from edt_sdk.monitor.base import Monitor
from edt_sdk.monitor.client_monitor import ClientMonitor
from edt_sdk.monitor.job_monitor import JobMonitor

__all__ = ["ClientMonitor", "JobMonitor", "Monitor"]
