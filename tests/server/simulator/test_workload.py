"""The files are read as the Pollux artifact writes them; what is wrong in them is named by line and column."""

import pytest

from edt_sdk.schemas.errors import InvalidRequest
from edt_server.simulator.workload import read_applications, read_workload

APPS = """application,workers,batch_size,samples_per_second,samples_total
net,1,32,100,36000
net,2,32,180,36000
net,4,32,300,36000
net,1,64,120,36000
"""
JOBS = """name,time,application,num_replicas,batch_size
a,10,net,2,32
b,0,net,1,64
"""


@pytest.fixture
def files(tmp_path):
    def write(jobs=JOBS, apps=APPS):
        (tmp_path / "w.csv").write_text(jobs)
        (tmp_path / "a.csv").write_text(apps)
        return tmp_path / "w.csv", tmp_path / "a.csv"

    return write


def test_jobs_and_speeds(files):
    b, a = read_workload(*files())
    assert (a.name, a.time, a.replicas, a.max_workers, a.work, a.speed.at(2)) == ("a", 10, 2, 4, 36000, 180)
    assert (b.name, b.speed.at(1), b.max_workers) == ("b", 120, 1)
    assert read_applications(files()[1])["net"].samples_total == 36000


def test_a_duration_stands_instead_of_the_applications(files):
    path, _ = files("name,time,num_replicas,duration\na,0,4,100\n")
    (job,) = read_workload(path)
    assert job.work == pytest.approx(100 * job.speed.at(4))
    assert job.max_workers == 8


def test_a_duration_beside_the_applications_takes_their_shape(files):
    jobs, apps = files("name,time,application,num_replicas,batch_size,duration\na,0,net,2,32,50\n")
    (job,) = read_workload(jobs, apps)
    assert job.work == 50 * 180


def test_optional_columns(files):
    path, _ = files(
        "name,time,num_replicas,duration,priority,max_workers,min_workers,owner,instance_group\na,0,2,9,8000,6,2,eva,day\n"
    )
    (job,) = read_workload(path)
    assert (job.priority, job.max_workers, job.min_workers, job.owner, job.instance_group) == (8000, 6, 2, "eva", "day")


def test_workers_in_units_and_programs_that_are_not_elastic(files):
    head = "name,time,num_replicas,duration,max_workers,slots_per_unit,elastic\n"
    path, _ = files(f"{head}a,0,4,9,8,4,yes\nb,0,3,9,,2,\nc,0,4,9,16,,no\n")
    a, b, c = read_workload(path)
    assert (a.max_workers, a.min_workers, a.slots_per_unit, a.keeps) == (8, 1, 4, False)
    assert (b.max_workers, b.slots_per_unit) == (6, 2)
    assert (c.max_workers, c.min_workers, c.keeps) == (4, 4, True)


HEAD = "name,time,application,num_replicas,batch_size\n"


@pytest.mark.parametrize(
    ("jobs", "line", "column"),
    [
        ("name,time\n", 1, "num_replicas"),
        (f"{HEAD}a,soon,net,1,32\n", 2, "time"),
        (f"{HEAD}a,-1,net,1,32\n", 2, "time"),
        (f"{HEAD}a,nan,net,1,32\n", 2, "time"),
        (f"{HEAD}a,0,net,0,32\n", 2, "num_replicas"),
        (f"{HEAD}a,0,net,1.5,32\n", 2, "num_replicas"),
        (f"{HEAD}a,0,net,1,32\n\na,1,net,1,32\n", 4, "name"),
        (f"{HEAD},0,net,1,32\n", 2, "name"),
        (f"{HEAD}a,0,bert,1,32\n", 2, "application"),
        (f"{HEAD}a,0,net,1,33\n", 2, "batch_size"),
        (f"{HEAD}a,0,net,1\n", 2, "batch_size"),
        ("name,time,num_replicas,duration,min_workers\na,0,1,5,9\n", 2, "min_workers"),
        ("name,time,num_replicas,duration,slots_per_unit\na,0,1,5,9\n", 2, "slots_per_unit"),
        ("name,time,num_replicas,duration,slots_per_unit,max_workers\na,0,1,5,2,3\n", 2, "max_workers"),
        ("name,time,num_replicas,duration,slots_per_unit,min_workers\na,0,4,5,2,3\n", 2, "min_workers"),
        ("name,time,num_replicas,duration,elastic\na,0,4,5,maybe\n", 2, "elastic"),
    ],
)
def test_what_is_wrong_is_named(files, jobs, line, column):
    path, apps = files(jobs)
    with pytest.raises(InvalidRequest) as wrong:
        read_workload(path, apps)
    assert (wrong.value.ids["line"], wrong.value.ids["field"]) == (line, column)
    assert str(path) in str(wrong.value)
    assert f"line {line}" in str(wrong.value)
    assert column in str(wrong.value)


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("net,0,32,1,36000", "workers"),
        ("net,8,32,fast,36000", "samples_per_second"),
        ("net,8,32,0,36000", "samples_per_second"),
        ("net,8,32,400,1", "samples_total"),
        ("net,4,32,400,36000", "workers"),
    ],
)
def test_what_is_wrong_in_the_speeds_is_named(files, row, column):
    jobs, apps = files(apps=f"{APPS}{row}\n")
    with pytest.raises(InvalidRequest) as wrong:
        read_workload(jobs, apps)
    assert (wrong.value.ids["line"], wrong.value.ids["field"]) == (6, column)


def test_files_that_are_none(files, tmp_path):
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_workload(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match="no CSV"):
        read_workload(tmp_path / "binary.csv")
    with pytest.raises(InvalidRequest, match="no jobs"):
        read_workload(files(HEAD)[0])
    with pytest.raises(InvalidRequest, match="more values"):
        read_workload(files(f"{HEAD}a,0,net,1,32,7\n")[0])
