"""Own the monitors of jobs: when watching ends, what it leaves in a notebook, a kernel's answers to a widget's page.

Never: draw what is live (`jupyter_ext/lab/src/monitor/` does), or import ipywidgets when this package is imported.

Read first: `base.py` (what both monitors share), then `job_monitor.py`.
"""

from edt_sdk.monitor.base import Monitor
from edt_sdk.monitor.client_monitor import ClientMonitor
from edt_sdk.monitor.job_monitor import JobMonitor

__all__ = ["ClientMonitor", "JobMonitor", "Monitor"]
