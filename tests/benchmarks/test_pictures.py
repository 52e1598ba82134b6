"""The benchmark's own server and client, a few jobs of a few updates: it measures something, whatever the figure is."""

from benchmarks import pictures
from benchmarks.long_history import BEGUN, NAME, write
from edt_jupyter.http.identity import account
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.testing import LocalServer


def test_every_picture_is_measured(tmp_path):
    owner = account()
    write(tmp_path / "edt", owner, 8)
    jobs = [f"{NAME}-{number:06d}" for number in range(6)]
    for job in jobs:
        pictures.write_metrics(JobPaths(tmp_path / "edt", owner, job), 600, BEGUN)
    with LocalServer(tmp_path, slots=2) as server:
        found = pictures.measure(server, jobs[:5], jobs[5])
    assert {"loss, first", "allocation", "compare five", "very long loss, first"} <= found["times"].keys()
    assert all(seconds > 0 for times in found["times"].values() for seconds in times)
    assert 0 < found["largest"] < pictures.MOST_BYTES
