"""A job made of another one: what it was submitted with, whatever has become of the files, and what is changed."""

from __future__ import annotations

import pytest

from tests.waiting import until_async

SCRIPT = b"""\
import os, pathlib, sys
here = pathlib.Path(__file__)
print("says", (here.parent / "word.txt").read_text(), os.environ.get("COLOUR"), *sys.argv[1:], flush=True)
here.write_text("print('written over')")
(here.parent / "left.txt").write_text("by the job")
"""
FILES = {"train.py": SCRIPT, "word.txt": b"hello", "other.py": b"print('other')"}


@pytest.fixture
def ended(call):
    """Waits until a job has finished; its lines."""

    async def wait(job):
        async def over():
            return (await call("GET", f"jobs/{job}")).json["state"] in ("FINISHED", "FAILED", "ERROR")

        await until_async(over, f"the end of {job}")
        return [line["text"] for line in (await call("GET", f"jobs/{job}/logs")).json["lines"]]

    return wait


@pytest.fixture
def first(submit, ended):
    """A job that has finished, and has written over its own code."""

    async def make(**changes):
        said = {"framework": "PyTorch", "args": ["--a", "b c"], "env": {"COLOUR": "red"}, "priority": 7000, **changes}
        answer = await submit(FILES, **said)
        assert answer.status == 201, answer.json
        await ended(answer.json["id"])
        return answer.json["id"]

    return make


async def test_it_is_the_package_as_it_came_with_all_settings(call, first, ended):
    job = await first()
    answer = await call("POST", "submissions", body={"source": {"job": job}})
    assert answer.status == 201, answer.json
    view = answer.json
    assert view["id"] != job
    assert answer.headers["Location"].endswith(f"/edt/api/jobs/{view['id']}")
    assert (view["name"], view["main"], view["args"]) == ("test job", "train.py", ["--a", "b c"])
    assert (view["priority"], view["framework"]) == (7000, "PyTorch")
    assert "says hello red --a b c" in await ended(view["id"])


async def test_a_clone_of_a_clone_outlives_both(call, first, ended):
    job = await first()
    second = (await call("POST", "submissions", body={"source": {"job": job}})).json["id"]
    await ended(second)
    assert (await call("DELETE", f"jobs/{job}")).status == 204
    third = (await call("POST", "submissions", body={"source": {"job": second}})).json["id"]
    assert "says hello red --a b c" in await ended(third)


async def test_what_is_said_goes_before_what_the_job_says(call, first, ended):
    spec = {"name": "second", "args": ["--c"], "priority": 100, "env": {}, "max_workers": 2}
    body = {"source": {"job": await first()}, "main": "other.py", "spec": spec}
    view = (await call("POST", "submissions", body=body)).json
    assert (view["name"], view["main"], view["args"], view["priority"]) == ("second", "other.py", ["--c"], 100)
    assert (view["max_workers"], view["min_workers"], view["slots_per_unit"]) == (2, 2, 2)
    assert "other" in await ended(view["id"])


async def test_a_change_while_it_lived_is_kept(call, submit, ended):
    job = (await submit(max_workers=2, framework="edtPyTorch")).json["id"]
    assert (await call("PATCH", f"jobs/{job}", body={"priority": 333, "max_workers": 1})).status == 200
    view = (await call("POST", "submissions", body={"source": {"job": job}})).json
    assert (view["priority"], view["max_workers"]) == (333, 1)


async def test_a_preview_lists_what_came_in(call, first):
    job = await first()
    answer = await call("POST", "previews", body={"source": {"job": job}, "spec": {"name": "anew"}})
    assert answer.status == 200, answer.json
    assert answer.json["files"] == [{"name": name, "size": len(FILES[name])} for name in sorted(FILES)]
    assert (answer.json["name"], answer.json["main"], answer.json["notes"]) == ("anew", "train.py", [])
    assert answer.json["size"] == sum(map(len, FILES.values()))
    assert answer.json["forecast"]["code"] == "now"


async def test_of_a_package_in_a_folder_of_its_own(call, submit, ended):
    job = (await submit({"top/train.py": b"print(1)"}, code_dir="top", framework="PyTorch")).json["id"]
    preview = await call("POST", "previews", body={"source": {"job": job}})
    assert [file["name"] for file in preview.json["files"]] == ["train.py"]
    again = await call("POST", "submissions", body={"source": {"job": job}})
    assert "1" in await ended(again.json["id"])


async def test_a_job_of_before_packages_were_kept_is_cloned_from_its_folder(call, submit, ended, tmp_path):
    job = (await submit({"train.py": b"print('old')", "sub/m.py": b""}, framework="PyTorch")).json["id"]
    await ended(job)
    (tmp_path / "edt" / "jobs" / job / "package").unlink()
    preview = await call("POST", "previews", body={"source": {"job": job}})
    assert [file["name"] for file in preview.json["files"]] == ["sub/m.py", "train.py"]
    again = await call("POST", "submissions", body={"source": {"job": job}})
    assert "old" in await ended(again.json["id"])


async def test_what_cannot_be_is_refused_with_a_sentence(call, first):
    job = await first()
    refused = (
        ({"source": {"job": "nobody-aaaaaa"}}, 404, None),
        ({"source": {"jobs": "x"}}, 400, "source"),
        ({"source": {}}, 400, "source"),
        ({"tag": "edt"}, 400, "tag"),
        ({"main": "none.py"}, 400, "main"),
        ({"main": "../train.py"}, 400, "main"),
        ({"spec": {"main": "train.py"}}, 400, "spec"),
        ({"spec": {"code_dir": "x"}}, 400, "spec"),
        ({"spec": {"max_workers": "many"}}, 400, "max_workers"),
        ({"spec": {"max_workers": 0}}, 422, "max_workers"),
        ({"spec": {"instance_group": "no"}}, 422, "instance_group"),
        ({"spec": {"dataset": "no"}}, 404, "dataset"),
        ({"spec": {"warm_start": "no"}}, 404, None),
    )
    for body, status, field in refused:
        answer = await call("POST", "submissions", body={"source": {"job": job}, **body})
        assert (answer.status, answer.json.get("field")) == (status, field), (body, answer.json)
        assert len(answer.json["message"]) > 10
        assert len((await call("GET", "jobs")).json["jobs"]) == 1


async def test_weights_that_it_began_with_are_kept_when_their_job_is_gone(call, submit, ended, tmp_path):
    weights = b"import os, pathlib; p = pathlib.Path(os.environ['RESULT_DIR'], 'model/train'); p.mkdir(parents=True, exist_ok=True); (p / 'model_epoch_final.pth').write_bytes(b'w')"  # noqa: E501
    root = (await submit({"train.py": weights}, framework="PyTorch")).json["id"]
    await ended(root)
    job = (await submit({"train.py": b"print(1)"}, framework="PyTorch", warm_start=root)).json["id"]
    await ended(job)
    assert (await call("DELETE", f"jobs/{root}")).status == 204
    view = (await call("POST", "submissions", body={"source": {"job": job}})).json
    assert view["warm_start"] == root
    assert (tmp_path / "edt" / "jobs" / view["id"] / "warm_start.pth").read_bytes() == b"w"
