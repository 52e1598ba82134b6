"""Our jobs in WMLA's words: states for each poller, ids that lead back, objects without lists, trees that match."""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec
import pytest

from edt_sdk.schemas.errors import InvalidRequest, NotFound
from edt_sdk.schemas.job import JobSpec, JobState, JobView, Reason
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.registered import WmlaRequest
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.wmla import applications, frameworks, ids, plan_tree, states
from edt_server.wmla.execs import Described, choice, chosen, exec_object, utc

ACTIVE = {
    *("NEW", "SUBMITTED", "PENDING_JOB_SCHEDULER", "PENDING_CRD_SCHEDULER"),
    *("LAUNCHING", "RUNNING", "RECOVERING", "UNKNOWN"),
}
DONE = {"FINISHED", "KILLED", "ERROR"}


def described(**changes) -> Described:
    spec = JobSpec(
        name="mnist",
        main="train.py",
        max_workers=4,
        code_dir="mnist-edt",
        wmla=WmlaRequest(args="--exec-start edtPyTorch   --model-main train.py  "),
    )
    view = JobView(
        id="mnist-abc234",
        name="mnist",
        owner="ann",
        state=JobState.RUNNING,
        state_since=1.0,
        created=1_600_000_000.25,
        started=1_600_000_010.5,
        ended=None,
        priority=5000,
        max_workers=4,
        instance_group="vision",
        mode="exact",
        seed=0,
        main="train.py",
        args=("--epochs", "3"),
        slots=3,
        shards=None,
        progress=None,
        reason=None,
        message="",
        result_dir="",
    )
    spec_changes = changes.pop("spec", {})
    return Described(
        msgspec.structs.replace(spec, **spec_changes),
        msgspec.structs.replace(view, **changes),
        JobPaths(Path("/data"), "ann", "mnist-abc234"),
    )


class TestStates:
    def test_every_state_has_a_word_in_every_table(self):
        for table in (states.EXEC, states.SCHEDULER, states.CONDUCTOR):
            assert set(table) == set(JobState)

    def test_notebooks_go_on_polling_an_exec_until_it_ends(self):
        """They stop at any word but these three; and what has ended is none of them."""
        for state in JobState:
            on_the_way = states.EXEC[state] in ("SUBMITTED", "PENDING_CRD_SCHEDULER", "RUNNING")
            assert on_the_way != state.final

    def test_dlicmd_stops_waiting_when_it_has_ended_and_not_before(self):
        for state in JobState:
            assert states.SCHEDULER[state] in (DONE if state.final else ACTIVE)
            assert states.EXEC[state] in (DONE if state.final else ACTIVE)

    def test_a_filter_means_every_state_that_is_shown_by_that_word(self):
        assert states.named(["ERROR"], states.EXEC) == [JobState.FAILED, JobState.ERROR]
        assert states.named(["running"], states.EXEC) == [JobState.RUNNING, JobState.RECOVERING]
        assert states.named(["FAILED"], states.EXEC) == [JobState.FAILED]
        assert states.named(["NEW", "UNKNOWN", ""], states.SCHEDULER) == []
        # LAUNCHING of an exec is shown as pending: who asks for launching ones gets none.
        assert states.named(["LAUNCHING"], states.EXEC) == []
        assert states.named(sorted(ACTIVE), states.SCHEDULER) == [s for s in JobState if not s.final]


class TestIds:
    def test_an_instance_group_has_one_uuid_for_ever(self):
        assert ids.sig_id("default") == "a79dd538-1838-5fdf-99c3-91d04c45570a"
        assert uuid.UUID(ids.sig_id("Größe 1")) != uuid.UUID(ids.sig_id("Größe 2"))
        assert ids.group_with(ids.sig_id("b"), ["a", "b"]) == "b"
        assert ids.group_with("b", ["a", "b"]) == "b"
        assert ids.group_with("c", ["a", "b"]) is None

    def test_a_driver_leads_to_its_job_also_when_a_job_is_called_driver(self):
        assert ids.jobs_meant(ids.driver_id("mnist-abc234"))[0] == "mnist-abc234"
        assert "driver-abc234" in ids.jobs_meant("driver-abc234")
        assert ids.jobs_meant("mnist-abc234") == ("mnist-abc234",)

    def test_an_executor_leads_to_its_worker(self):
        assert ids.worker_meant(ids.executor_id(12, "mnist-abc234")) == 12
        assert ids.worker_meant("3") == 3
        assert ids.worker_meant("x") is None
        assert ids.worker_meant("1234567-job") is None


class TestAnExec:
    def test_is_flat(self):
        found = exec_object(described(), server="https://here:9243")
        assert all(isinstance(value, (str, int, bool)) for value in found.values())

    def test_has_the_fields_of_both_generations(self):
        found = exec_object(described(), server="https://here:9243")
        old = "userName sigName sigId id args submissionId appId masterURL state executionUserName"
        new = (
            "id appId submissionId args creator state schedulerUrl modelFileOwnerName workDir appName createTime "
            "elastic nameSpace numWorker framework"
        )
        assert set(old.split()) | set(new.split()) <= set(found)
        assert found["id"] == found["appId"] == "mnist-abc234"
        # As submitted, with its blanks, and one at its end.
        assert found["args"] == "--exec-start edtPyTorch   --model-main train.py "
        assert found["createTime"] == "2020-09-13T12:26:40Z"
        assert found["workDir"] == "/data/results/ann/batchworkdir/mnist-abc234/_submitted_code/mnist-edt"
        assert (found["appName"], found["numWorker"], found["elastic"]) == ("ElasticPyTorchTrain", 4, True)

    def test_of_a_native_job_has_its_name_and_arguments(self):
        found = exec_object(described(spec={"wmla": None}), server="")
        assert (found["appName"], found["args"]) == ("mnist", "--epochs 3")

    def test_says_why_it_waits(self):
        reason = Reason(code="busy", text="All 2 slots are busy.", held=0, entitled=0, asked=1)
        found = exec_object(described(state=JobState.PENDING, reason=reason), server="")
        assert (found["state"], found["message"]) == ("PENDING_CRD_SCHEDULER", "All 2 slots are busy.")
        ended = exec_object(described(state=JobState.FAILED, message="It ended with 1."), server="")
        assert (ended["state"], ended["message"]) == ("ERROR", "It ended with 1.")


class TestAList:
    ITEMS = [{"id": "b", "n": 2}, {"id": "a", "n": 10}, {"id": "c"}]

    def pick(self, **query):
        return [each["id"] for each in chosen(self.ITEMS, choice(query))]

    def test_in_the_order_and_number_asked_for(self):
        assert self.pick() == ["b", "a", "c"]
        assert self.pick(sort_by="id:desc") == ["c", "b", "a"]
        assert self.pick(sort_by="id") == ["a", "b", "c"]
        assert self.pick(sort="-n") == ["a", "b", "c"]
        assert self.pick(sort="n", limit="2") == ["c", "b"]
        assert self.pick(start="1", length="10000") == ["a", "c"]
        assert self.pick(limit="0") == []

    def test_of_equal_ones_the_newest_is_first_or_last(self):
        assert self.pick(sort="-nothing") == ["b", "a", "c"]
        assert self.pick(sort="nothing") == ["c", "a", "b"]

    def test_of_states_by_their_words(self):
        assert choice({"state": "FINISHED"}).states == (JobState.FINISHED,)
        assert choice({"state": "FINISHED,ERROR"}).states == (JobState.FINISHED, JobState.FAILED, JobState.ERROR)
        assert choice({}).states is None
        assert choice({"state": "NOBODYS"}).states == ()

    def test_a_number_that_is_none_is_named(self):
        with pytest.raises(InvalidRequest) as wrong:
            choice({"limit": "-1"})
        assert wrong.value.ids["field"] == "limit"


class TestAnApplication:
    PLAN = Plan(
        instance_groups=(
            InstanceGroup(name="research"),
            InstanceGroup(name="vision", parent="research", share=3),
            InstanceGroup(name="speech", parent="research"),
        )
    )

    def test_of_the_engine_can_be_read_by_dlicmd(self):
        found = applications.engine_application(described(), plan_tree.parents(self.PLAN), gpus=True)
        assert (found["submit_time"], found["start_time"], found["end_time"]) == (1_600_000_000, 1_600_000_010, 0)
        assert all(type(found[name]) is int for name in ("submit_time", "start_time", "end_time"))
        for field in ("task0_resreq", "task12n_resreq"):
            pairs = [pair.split("=") for pair in found[field].split(",")]
            assert all(len(pair) == 2 and float(pair[1]) >= 0 for pair in pairs)
        assert (found["used_gpu"], found["task12n_num"], len(found["task12n"])) == (3, 4, 3)
        assert (found["is_packing"], found["pack_id"]) == (False, "")

    def test_belongs_to_its_node_of_the_tree(self):
        tree = plan_tree.tree(self.PLAN)
        paths = {}

        def walk(node, above):
            paths[f"{above}/{node['id']}"] = node
            for child in node["childTreeDto"]:
                assert child["pid"] == node["id"]
                walk(child, f"{above}/{node['id']}")

        walk(tree, "")
        found = applications.engine_application(described(), plan_tree.parents(self.PLAN), gpus=False)
        assert found["consumer"] in paths
        assert paths[found["consumer"]]["id"] == "vision"
        assert found["tag"] == f"{found['consumer']}/{found['submit_user']}"

    def test_without_a_driver_has_no_driver(self):
        job = described(framework="PyTorch")
        assert "task0_resreq" not in applications.engine_application(job, {}, gpus=True)
        assert not applications.application_detail(job, 2, False, 0.0)["task0"]
        assert len(applications.application_detail(job, 2, True, 0.0)["task12n"]) == 2

    def test_of_conductor_counts_minutes_and_slots(self):
        workers = [{"worker": 0, "host": "a"}, {"worker": 3, "host": "b"}]
        found = applications.conductor_application(described(), workers, 1_600_000_040.5)
        assert found["apprunduration"] == 0.5
        assert (found["gpuslots"], found["driver"]["state"]) == (3, "RUNNING")
        assert [each["id"] for each in found["executors"]] == ["3-mnist-abc234", "0-mnist-abc234"]
        ended = described(state=JobState.FINISHED, ended=1_600_000_070.5)
        assert applications.conductor_application(ended, [], 2e9)["apprunduration"] == 1.0
        assert applications.conductor_application(described(started=None), [], 2e9)["apprunduration"] == 0.0

    def test_waiting_says_why_as_a_parallel_job(self):
        reason = Reason(code="busy", text="All busy.", held=0, entitled=0, asked=1)
        found = applications.parallel_job(described(state=JobState.PENDING, reason=reason, started=None))
        assert found["status"] == {
            "jobStatus": "PENDING_JOB_SCHEDULER",
            "jobPendingReason": "All busy.",
            "jobStartTime": "",
        }

    def test_a_plan_is_found_by_its_name_or_path(self):
        assert plan_tree.node(self.PLAN, "vision")["shareRatio"] == 3
        assert plan_tree.node(self.PLAN, "/jupyter-edt/research/vision")["path"] == "/jupyter-edt/research/vision"
        assert plan_tree.node(self.PLAN, "jupyter-edt")["pid"] == ""
        with pytest.raises(NotFound, match="research, vision, speech"):
            plan_tree.node(self.PLAN, "none")


def test_frameworks_have_the_fields_that_dlicmd_reads():
    listed = frameworks.listing(8)
    assert {"edtPyTorch", "PyTorch", "distPyTorch", "torchrun"} == {each["name"] for each in listed}
    for each in listed:
        assert isinstance(each["desc"], list)
        assert all(isinstance(line, str) for line in each["desc"])
        assert each["frameworkVersion"] == ""
    assert frameworks.app_name("edtPyTorch") == "ElasticPyTorchTrain"
    assert frameworks.app_name("other") == "other"
    assert frameworks.details("caffe") == []
    assert len(frameworks.details()) == len(frameworks.details("PyTorch")) == 4


def test_a_time_is_written_in_utc():
    assert utc(0.9) == "1970-01-01T00:00:00Z"
    assert utc(None) == ""
