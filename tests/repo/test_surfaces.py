"""One verb, one name: what the design and the guides name is there, in Python, at a shell, as a magic, in REST."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from edt_sdk import Client, Job
from edt_sdk.cli import build_parser
from edt_sdk.magics import OURS

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
GUIDES = (
    "user-guide.md",
    "admin-guide.md",
    "simulate.md",
    *sorted(f"guide/{path.name}" for path in GUIDE.glob("*.md")),
)
# Method of Client or Job, REST, `edt`, magic; - where a surface has none.
DESIGN = """
Client.submit           POST /jobs                  submit       edt_submit
Client.interpreters     GET /interpreters           -            -
Client.preview          POST /previews              submit       edt_submit
Client.forecast         POST /forecasts             submit       edt_submit
Client.jobs             GET /jobs                   list         edt_jobs
Client.job              GET /jobs/{id}              get          -
Job.wait                -                           wait         -
Job.clone               POST /submissions           -            -
Job.update              PATCH /jobs/{id}            update       edt_update
Job.suspend             POST /jobs/{id}/suspend     suspend      edt_suspend
Job.resume              POST /jobs/{id}/resume      resume       edt_resume
Job.stop                POST /jobs/{id}/stop        stop         edt_stop
Job.delete              DELETE /jobs/{id}           delete       edt_delete
Job.logs                GET /jobs/{id}/logs         logs         edt_logs
Job.metrics             GET /jobs/{id}/metrics      metrics      edt_metrics
Job.story               GET /jobs/{id}/events       story        edt_story
Client.compare          GET /pictures/{picture}     picture      edt_compare
Job.timeline            GET /jobs/{id}/timeline     timeline     edt_timeline
Client.timeline         GET /timeline               timeline     edt_timeline
Job.picture             GET /jobs/{id}/pictures/{picture} picture -
Client.picture          GET /pictures/{picture}     picture      -
Job.what_if             GET /jobs/{id}/what-if      what-if      edt_what_if
Job.workers             GET /jobs/{id}/workers      workers      edt_workers
Job.checkpoints         GET /jobs/{id}/checkpoints  checkpoints  edt_checkpoints
Job.validate            POST /jobs/{id}/validations validate     edt_validate
Job.validation          GET /jobs/{id}/validation   validation   edt_validation
Job.download            GET /jobs/{id}/result       download     edt_download
Client.cluster          GET /cluster                cluster      -
Client.plan             GET /plan                   plan         -
Client.set_plan         PUT /plan                   plan         -
Client.instance_groups  GET /instance-groups        groups       -
Client.resource_groups  GET /resource-groups        resources    -
Client.datasets         GET /datasets               dataset      -
Client.dataset          GET /datasets/{name}        dataset      -
Client.add_dataset      POST /datasets              dataset      -
Client.delete_dataset   DELETE /datasets/{name}     dataset      -
Client.models           GET /models                 model        -
Client.model            GET /models/{name}          model        -
Client.add_model        POST /models                model        -
Client.update_model     PATCH /models/{name}        -            -
Client.train_model      POST /models/{name}/train   model        -
Client.delete_model     DELETE /models/{name}       model        -
Job.monitor             -                           -            edt_monitor
Client.monitor          -                           -            edt_monitor
-                       -                           simulate     -
"""


def shell_verbs():
    return set(build_parser()._subparsers._group_actions[0].choices)


def magics():
    return {name for cls in OURS for kind in cls.magics.values() for name in kind}


def guide(*names):
    return "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in names)


@pytest.fixture(scope="module")
def paths():
    text = (ROOT / "jupyter_ext/edt_jupyter/openapi.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["paths"]


@pytest.mark.parametrize("row", DESIGN.strip().splitlines())
def test_a_verb_has_its_name_on_every_surface(row, paths):
    sdk, *rest, shell, magic = row.split()
    if sdk != "-":
        owner, name = sdk.split(".")
        assert callable(getattr({"Client": Client, "Job": Job}[owner], name))
    if rest != ["-"]:
        method, path = rest
        assert method.lower() in paths[path]
    assert shell == "-" or shell in shell_verbs()
    assert magic == "-" or magic in magics()


@pytest.mark.parametrize("name", GUIDES)
def test_what_the_guides_name_is_there(name):
    code = " ".join(re.findall(r"```.*?```|`[^`\n]+`", guide(name), re.DOTALL))
    assert {verb for verb in re.findall(r"\bclient\.(\w+)\(", code) if not hasattr(Client, verb)} == set()
    assert {verb for verb in re.findall(r"\bjob\.(\w+)\(", code) if not hasattr(Job, verb)} == set()
    assert set(re.findall(r"(?:`|; |^)edt ([a-z][a-z-]+)", code, re.MULTILINE)) <= shell_verbs()
    assert set(re.findall(r"%(edt_\w+)", code)) <= magics()


def test_every_verb_of_the_shell_and_every_magic_is_in_a_guide():
    text = guide(*GUIDES)
    assert {verb for verb in shell_verbs() if f"edt {verb}" not in text} == set()
    assert {magic for magic in magics() if f"%{magic}" not in text} == set()
