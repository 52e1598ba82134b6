"""Own jobs watched live: tabs of widgets in a notebook, a line in a terminal.

Never: ipywidgets at import.

Read first: `base.py` (what both monitors share), then `job_monitor.py`.
"""

from edt_sdk.monitor.base import Monitor
from edt_sdk.monitor.client_monitor import ClientMonitor
from edt_sdk.monitor.job_monitor import JobMonitor

__all__ = ["ClientMonitor", "JobMonitor", "Monitor"]
