"""The simulator: a workload, or a recorded past, played against the very core object that the service runs.

Pure but for its command line (`command.py`): no clock, no files, no processes. docs/simulate.md is its manual, also
for using the core from another simulator.
"""

from edt_server.simulator.engine import Engine, Life, Run, Scheduler, Settings, simulate
from edt_server.simulator.figures import Figures, figures, finish_time_fairness
from edt_server.simulator.picture import allocation, draw
from edt_server.simulator.policies import POLICIES, RigidQueue, fit, make
from edt_server.simulator.recorded import read_events, recorded_run, workload_of
from edt_server.simulator.speed import Speed
from edt_server.simulator.workload import SimulatedJob, read_applications, read_workload

__all__ = [
    "POLICIES",
    "Engine",
    "Figures",
    "Life",
    "RigidQueue",
    "Run",
    "Scheduler",
    "Settings",
    "SimulatedJob",
    "Speed",
    "allocation",
    "draw",
    "figures",
    "finish_time_fairness",
    "fit",
    "make",
    "read_applications",
    "read_events",
    "read_workload",
    "recorded_run",
    "simulate",
    "workload_of",
]
