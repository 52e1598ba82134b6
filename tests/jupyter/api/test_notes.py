"""Notes and labels of a job: given at submission, changed at any time, found by a label, seen by the owner alone."""

import pytest

from tests.waiting import until_async


async def test_they_are_kept_changed_after_the_end_and_found(submit, call):
    job = (await submit(notes="first try", tags=["digits", "lr 0.1"], name="tagged")).json
    other = (await submit(name="plain")).json["id"]
    assert (job["notes"], job["tags"]) == ("first try", ["digits", "lr 0.1"])

    await call("POST", f"jobs/{job['id']}/stop")

    async def ended():
        return (await call("GET", f"jobs/{job['id']}")).json["state"] == "KILLED"

    await until_async(ended, "its end")
    changed = await call("PATCH", f"jobs/{job['id']}", body={"notes": "", "tags": ["kept"]})
    assert (changed.status, changed.json["notes"], changed.json["tags"]) == (200, "", ["kept"])
    assert changed.json["state"] == "KILLED"
    refused = await call("PATCH", f"jobs/{job['id']}", body={"priority": 1, "notes": "both or none"})
    assert refused.status == 409
    assert (await call("GET", f"jobs/{job['id']}")).json["notes"] == ""

    async def listed(**params):
        return [each["id"] for each in (await call("GET", "jobs", params=params)).json["jobs"]]

    assert await listed(tag="kept") == [job["id"]]
    assert await listed(tag="digits") == []
    assert sorted(await listed()) == sorted([job["id"], other])
    story = (await call("GET", f"jobs/{job['id']}/events")).json["events"]
    assert sum("changed its notes and tags" in event["text"] for event in story) == 1


async def test_project_and_experiment_are_changed_together_and_found(submit, call):
    one = (await submit(project="mnist ä", experiment="rates")).json
    two = (await submit(project="mnist ä")).json
    other = (await submit(project="other", experiment="rates")).json
    plain = (await submit()).json
    assert (one["project"], one["experiment"], two["experiment"], plain["project"]) == ("mnist ä", "rates", "", "")

    async def listed(**params):
        return {each["id"] for each in (await call("GET", "jobs", params=params)).json["jobs"]}

    assert await listed(project="mnist ä") == {one["id"], two["id"]}
    assert await listed(experiment="rates") == {one["id"], other["id"]}
    assert await listed(project="mnist ä", experiment="rates", all=1) == {one["id"]}
    assert await listed(project="MNIST") == set()

    async def change(job, **patch):
        return await call("PATCH", f"jobs/{job['id']}", body=patch)

    refused = await change(plain, experiment="rates")
    assert (refused.status, refused.json["field"]) == (422, "experiment")
    assert "is in no project" in refused.json["message"]
    assert (await change(one, project="")).status == 422, "its experiment would be in none"
    assert (await change(two, experiment="rates")).json["experiment"] == "rates", "in the project it has"
    moved = await change(one, project="", experiment="")
    assert (moved.json["project"], moved.json["experiment"]) == ("", "")
    assert await listed(project="mnist ä") == {two["id"]}


async def test_a_clone_has_those_of_its_job(submit, call):
    labels = {"project": "mnist", "experiment": "rates"}
    job = (await submit(notes="why", tags=["digits"], **labels)).json["id"]
    clone = await call("POST", "submissions", body={"source": {"job": job}, "spec": {"tags": ["again"]}})
    assert (clone.status, clone.json["notes"], clone.json["tags"]) == (201, "why", ["again"])
    assert {name: clone.json[name] for name in labels} == labels


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"notes": "x" * 10_001}, "notes", "at most 10,000 characters"),
        ({"notes": "a\0b"}, "notes", "NUL"),
        ({"tags": [f"t{n}" for n in range(21)]}, "tags", "at most 20 tags"),
        ({"tags": ["x" * 41]}, "tags", "1 to 40 characters"),
        ({"tags": [" "]}, "tags", "no tag"),
        ({"tags": ["a,b"]}, "tags", "no comma"),
        ({"tags": ["a", "b", "a"]}, "tags", "twice"),
        ({"tags": "a"}, "tags", "must be a list"),
        ({"project": "a/b"}, "project", "no slash"),
        ({"project": "x" * 101}, "project", "at most 100 characters"),
        ({"project": " a"}, "project", "no name of a project"),
        ({"project": ".."}, "project", "not only dots"),
        ({"project": "a", "experiment": "b\n"}, "experiment", "no name of an experiment"),
        ({"experiment": "b"}, "experiment", "in no project"),
    ],
)
async def test_what_is_refused(submit, call, change, field, says):
    refused = await submit(**change)
    assert refused.status in (400, 422)
    assert refused.json["field"] == field
    assert says in refused.json["message"] + refused.json["hint"]
