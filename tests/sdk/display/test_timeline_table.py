import base64
import re

from edt_sdk.display.readings import Timeline
from edt_sdk.pictures.parts.colours import colours
from edt_sdk.pictures.parts.look import job_colour


def timeline_table(rows, names=None, **how):
    return Timeline(capacity=4, rows=rows, names=names or {}).table(**how)


def row(time, slots, free, text, settled=True):
    return {
        "time": time,
        "seq": 1,
        "slots": slots,
        "free": free,
        "capacity": 4,
        "cause": "x",
        "text": text,
        "settled": settled,
    }


ROWS = [
    row(100.0, {"a": 4}, 0, "one starts"),
    {**row(104.25, {"a": 4, "b": 0}, 0, "one is asked for 2", settled=False), "leaving": {"a": 2}},
    row(104.5, {"a": 2, "b": 2}, 0, "two arrives"),
    row(170.0, {"a": 1, "b": 3}, 0, "priority of two is 10000"),
    row(3800.0, {"b": 4}, 0, "one has ended"),
    row(3900.0, {}, 4, "two has ended"),
]


def test_the_table():
    assert timeline_table(ROWS, {"a": "one", "b": "two"}).splitlines() == [
        "     time  A one  B two  free  slots  cause",
        "   0:00.0      4      -     0  AAAA   one starts",
        "~  0:04.2      4      -     0  AAaa   one is asked for 2",
        "   0:04.5      2      2     0  AABB   two arrives",
        "   1:10.0      1      3     0  ABBB   priority of two is 10000",
        "  1:01:40      -      4     0  BBBB   one has ended",
        "  1:03:20      -      -     4  ····   two has ended",
        "~ and small letters: slots that a job is about to release.",
    ]


def test_many_jobs_and_changes_print_narrow():
    names = {f"j{at}": f"a long name {at}" for at in range(8)}
    rows = [
        row(100.0 + at, {f"j{at % 8}": 4}, 0, "who has slots now, and why it has just as many as these")
        for at in range(50)
    ]
    timeline = Timeline(capacity=4, rows=rows, names=names)
    lines = repr(timeline).splitlines()
    assert lines[0] == "… 10 earlier changes: .table() has them all."
    assert lines[1].startswith("A a long name 2, B a long name 3")
    assert [line for line in lines if line.startswith("     time")] == ["     time  free  slots  cause"]
    assert lines[-1].startswith("   0:49.0     0  ")
    assert max(map(len, lines)) <= 120
    assert len(timeline.table().splitlines()) == 51


def test_settled_rows_alone():
    assert len(timeline_table(ROWS, settled_only=True).splitlines()) == len(ROWS)


def test_jobs_of_the_same_name_are_told_apart():
    head = timeline_table(ROWS, {"a": "digits", "b": "digits"}).splitlines()[0]
    assert "A digits…a" in head
    assert "B digits…b" in head


def test_nothing_yet():
    assert timeline_table([]) == "No slot has been given to a job yet."


def test_a_machine_wider_than_a_line_has_numbers_only():
    wide = {**row(0.0, {"a": 200}, 56, "big"), "capacity": 256}
    assert "AAAA" not in timeline_table([wide])


def test_each_job_has_its_own_colour_as_in_the_pictures_of_the_server():
    running = next(job for job in map(str, range(100)) if job != "ended" and job_colour(job) == job_colour("ended"))
    rows = [row(100.0, {"ended": 4}, 0, "one starts"), row(200.0, {running: 4}, 0, "two starts")]
    html = Timeline(capacity=4, rows=rows, names={"ended": "one", running: "two"}, until=300.0)._repr_html_()
    picture = base64.b64decode(re.search(r"data:image/svg\+xml;base64,([^\"']+)", html)[1]).decode()
    assert area_colours(picture) == {"one": job_colour("ended"), "two": job_colour(running)}
    # The later one of two that share a colour has a pattern, in its area and in the legend.
    served = colours(["ended", running])
    assert set(served.over) == {running}
    assert picture.count(served.over[running]) == 2


def area_colours(picture):
    """Return the colour of each job's area, by the name in its tooltip."""
    return dict(re.findall(r'<title>(one|two): [^<]*</title><path [^>]*fill="(#\w+)"', picture))
