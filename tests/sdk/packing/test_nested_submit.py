"""Notes on code that would submit a job from inside the job."""

import pytest

from edt_sdk.packing.cells import script_from_cells
from edt_sdk.packing.nested_submit import submit_notes
from edt_sdk.packing.sources import collect

TRAINS = "from fabric_model import FabricModel\nFabricModel(model, data, loss, optimizer).train(1, 2, 2)\n"
TOUR = ("from edt_sdk import Client\nclient = Client()", "%%writefile train.py\nx = 1", "job = client.submit('own')")


def test_a_cell_that_submits_is_named_by_its_number():
    _, notes = script_from_cells([*TOUR, "job.wait()"])
    assert notes == (
        "cell 2: not run in a job: %%writefile train.py",
        "cell 3: the job would run client.submit(…) too, and submit a job itself",
        "submit only the cells of the training: in a notebook, give them the tag edt",
    )


def test_a_script_that_submits_is_named_in_a_folder_and_alone(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(f"import edt_sdk as edt\nwith edt.Client() as here:\n    here.submit('own')\n{TRAINS}")
    note = "run.py: the job would run here.submit(…) too, and submit a job itself"
    assert note in collect(tmp_path).notes
    assert note in collect(script).notes
    (tmp_path / "train.py").write_text(TRAINS)
    assert collect(tmp_path, main="train.py").notes == ()


@pytest.mark.parametrize(
    "source",
    [
        "from concurrent.futures import ThreadPoolExecutor\nimport edt_sdk\nThreadPoolExecutor().submit(print)",
        "from dask.distributed import Client\nimport edt_sdk\nclient = Client()\nclient.submit(print)",
        "from edt_sdk import Client\nClient().jobs()  # and not .submit()",
        "from edt_sdk import Client\nClient().submit(",
    ],
)
def test_another_submit_has_no_note(source):
    assert submit_notes([("train.py", source)]) == ()


def test_a_call_on_a_new_client_is_found():
    assert len(submit_notes([("a.py", "from edt_sdk import Client as C\nC('http://x').submit('own')")])) == 1
