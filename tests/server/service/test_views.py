"""What a job's owner sees, and what everybody does."""

from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.jobs.submission import Submission
from edt_server.ledger.ledger import Ledger
from edt_server.service import views


def test_whose_weights_a_job_began_with_is_its_owners_to_see(tmp_path):
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'edt.db'}")
    spec = JobSpec(name="second", main="train.py", max_workers=1, warm_start="first-1")
    ledger.change(Submission("second-1", "ann", spec, "/python", 1, JobPaths(tmp_path, "ann", "second-1")).enter)
    view = views.job_view(ledger, ledger.row("second-1"), tmp_path, None, 0.0, {})
    assert view.warm_start == "first-1"
    assert views.public_view(view).warm_start == ""
    ledger.close()
