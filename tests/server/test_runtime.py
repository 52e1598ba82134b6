"""The runtime folder of a server that ends: removed, unless somebody still has something in it."""

from edt_server.runtime import leave_runtime_dir


def test_nothing_of_it_is_left_when_nothing_is_in_it(tmp_path):
    place = tmp_path / "edt"
    place.mkdir()
    (place / "warm.log").touch()
    leave_runtime_dir(place)
    assert not place.exists()
    leave_runtime_dir(place)


def test_sockets_of_jobs_that_go_on_and_what_spares_said_stay(tmp_path):
    place = tmp_path / "edt"
    (place / "job-1").mkdir(parents=True)
    (place / "warm.log").write_text("Traceback")
    leave_runtime_dir(place)
    assert sorted(entry.name for entry in place.iterdir()) == ["job-1", "warm.log"]
