"""Own `Client`, `Job` and `Search`: the verbs of the product in Python.

Never: pictures, widgets or parsing of command lines.

Read first: `client.py`, then `job.py`.
"""

from edt_sdk.client.client import Client, JobList, PackagePreview
from edt_sdk.client.deployments import Deployment
from edt_sdk.client.hosts import HostList
from edt_sdk.client.job import Job, looks_like_id
from edt_sdk.client.projects import Experiment, Project
from edt_sdk.client.search import Search, SearchTrial
from edt_sdk.client.versions import Version

__all__ = [
    "Client", "Deployment", "Experiment", "HostList", "Job", "JobList", "PackagePreview", "Project", "Search",
    "SearchTrial", "Version", "looks_like_id",
]  # fmt: skip
