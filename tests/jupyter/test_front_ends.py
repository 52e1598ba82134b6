"""Programs that are too old to show the front end are named, with what to install."""

from edt_jupyter import front_ends


def test_what_is_too_old_is_named_with_what_to_install():
    (lab, notebook) = front_ends.too_old({"jupyterlab": "3.6.8", "notebook": "7.1.3"})
    assert lab.startswith("jupyterlab 3.6.8 is too old")
    assert "pip install -U 'jupyterlab>=4.2'" in lab
    assert "pip install -U 'notebook>=7.2'" in notebook


def test_what_is_new_enough_or_not_there_is_not():
    assert front_ends.too_old({"jupyterlab": "4.2.0", "notebook": "7.10.0rc1"}) == []
    assert front_ends.too_old({"jupyterlab": "10.0.0"}) == []
    assert front_ends.too_old({}) == []
    assert front_ends.too_old({"jupyterlab": "main"}) == []


def test_those_of_this_environment_are_new_enough():
    found = front_ends.installed()
    assert set(found) == {"jupyterlab", "notebook"}
    assert front_ends.too_old(found) == []
