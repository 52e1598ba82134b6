"""Colours that everybody can tell apart and read, words that fit, axes with round values and real times."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from edt_sdk.pictures.curves import Loss, smoothed
from edt_sdk.pictures.parts import scales
from edt_sdk.pictures.parts.colours import colour_for_new, colours, compared_colours
from edt_sdk.pictures.parts.lettering import clean, shortened, width_of, wrapped
from edt_sdk.pictures.parts.look import AUTO, DARK, JOB_COLOURS, LIGHT, OTHERS_COLOUR, Look, job_colour, on_colour
from edt_sdk.pictures.parts.marks import MOST_MARKS, Mark, gathered

# Machado, Oliveira and Fernandes (2009), severity 1; tritanopia after Viénot.
_EYES = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def linear(colour):
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour):
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    red, green, blue = (min(1.0, max(0.0, part)) for part in rgb)
    x = 0.4124 * red + 0.3576 * green + 0.1805 * blue
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = 0.0193 * red + 0.1192 * green + 0.9505 * blue
    fx, fy, fz = ((t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116) for t in (x / 0.9505, y, z / 1.089))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def seen(colour, eyes):
    rgb = linear(colour)
    return lab([sum(a * b for a, b in zip(row, rgb, strict=True)) for row in _EYES[eyes]])


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_colours_of_jobs_stand_out_from_either_ground(ground):
    assert {colour: contrast(colour, ground) for colour in JOB_COLOURS if contrast(colour, ground) < 3} == {}
    assert contrast(OTHERS_COLOUR, ground) > 3


@pytest.mark.parametrize(
    ("eyes", "least"), [("usual", 30), ("protanopia", 18), ("deuteranopia", 18), ("tritanopia", 15)]
)
def test_any_two_colours_of_jobs_can_be_told_apart(eyes, least):
    """CIE76 distances; 2.3 is what an eye just notices side by side."""
    distances = {(a, b): math.dist(seen(a, eyes), seen(b, eyes)) for a, b in itertools.combinations(JOB_COLOURS, 2)}
    assert {pair: distance for pair, distance in distances.items() if distance < least} == {}


@pytest.mark.parametrize(
    ("ink", "ground", "least"),
    [(AUTO, "#ffffff", 3.9), (AUTO, "#111111", 3.9), (LIGHT, "#ffffff", 5), (DARK, "#111111", 5)],
)
def test_words_can_be_read(ink, ground, least):
    assert contrast(ink.text, ground) > least
    assert contrast(ink.soft, ground) > least
    for colour in (ink.train, ink.test, ink.good, ink.bad, ink.warn):
        assert contrast(colour, ground) > 2.8, colour


@pytest.mark.parametrize("colour", [*JOB_COLOURS, OTHERS_COLOUR])
def test_names_on_areas_can_be_read(colour):
    assert contrast(on_colour(colour), colour) > 4


class TestColoursOfJobs:
    TWINS = [f"job-{n}" for n in range(199) if job_colour(f"job-{n}") == JOB_COLOURS[0]][:12]

    def test_a_job_has_its_own_everywhere(self):
        assert job_colour("digits-a-x1y2z3") == job_colour("digits-a-x1y2z3")
        assert {job_colour(f"job-{n}") for n in range(200)} == set(JOB_COLOURS)

    def test_it_keeps_its_colour_whatever_others_are_shown(self):
        for shown in (self.TWINS, self.TWINS[3:], self.TWINS[3:5], [self.TWINS[3]]):
            assert colours(shown).of(self.TWINS[3]) == JOB_COLOURS[0]

    def test_a_pattern_tells_two_apart_that_share_one(self):
        dyes = colours([*self.TWINS[:5], self.TWINS[0]])
        assert list(dyes.over) == self.TWINS[1:5], "the first has none"
        assert len(set(dyes.over.values())) == 4
        assert colours(self.TWINS[1:2]).over == {}

    def test_a_new_job_gets_one_that_no_other_has(self):
        submitted: list[str] = []
        for number in range(12):
            colour = colour_for_new(submitted, reversed(submitted))
            submitted.append(next(job for n in range(999) if job_colour(job := f"j{number}-{n}") == colour))
        assert (
            {job_colour(job) for job in submitted[:8]} == {job_colour(job) for job in submitted[4:]} == set(JOB_COLOURS)
        )
        # All but two have ended. The colours of these stay theirs, however many jobs are submitted.
        living = submitted[:2]
        for number in range(20):
            colour = colour_for_new(living, reversed(submitted[-8:]))
            assert colour not in map(job_colour, living)
            submitted.append(next(job for n in range(999) if job_colour(job := f"k{number}-{n}") == colour))

    def test_lines_of_a_comparison_have_one_each(self):
        first, second, third = self.TWINS[:3]
        other = next(f"job-{n}" for n in range(99) if job_colour(f"job-{n}") == JOB_COLOURS[1])
        found = compared_colours([first, second, other, third])
        assert (found[0], found[2]) == (JOB_COLOURS[0], JOB_COLOURS[1]), "whose own colour is free keeps it"
        assert len(set(found)) == 4
        assert set(compared_colours(self.TWINS)) == set(JOB_COLOURS)

    def test_others_put_together_are_grey(self):
        assert colours(["", "a"]).of("") == OTHERS_COLOUR


@pytest.mark.parametrize("bad", [{"theme": "sepia"}, {"width": 10}, {"width": 10**6}])
def test_a_look_that_cannot_be_is_refused(bad):
    with pytest.raises(ValueError, match=r"theme is|width is"):
        Look(**bad)


class TestWords:
    def test_the_middle_goes_and_what_remains_fits(self):
        name = "resnet50-imagenet-baseline-run-0017"
        short = shortened(name, 120, 11)
        assert width_of(short, 11) <= 120
        assert short.startswith("resnet")
        assert short.endswith("0017")
        assert "…" in short

    def test_what_fits_stays_and_where_nothing_fits_there_is_nothing(self):
        assert shortened("digits", 100, 11) == "digits"
        assert shortened("digits", 2, 11) == ""

    def test_lines_break_at_words(self):
        assert wrapped("one two three", 60, 12) == ["one two", "three"]
        assert all(width_of(line, 12) <= 80 for line in wrapped("word " * 80, 80, 12))

    def test_what_xml_cannot_hold_is_replaced(self):
        assert clean("a\x00b\n c\ud800") == "a\ufffdb c\ufffd"


class TestAxes:
    def test_numbers_of_an_axis_have_one_unit(self):
        assert [name for _, name in scales.numbers([0, 5000, 10_000])] == ["0", "5 k", "10 k"]
        assert [name for _, name in scales.numbers([0, 0.25])] == ["0", "0.25"]
        assert scales.number(2e20) == "2e+20"

    @pytest.mark.parametrize(
        ("span", "expected"),
        [
            (8, ["12:00:00", "12:00:02", "12:00:04", "12:00:06", "12:00:08"]),
            (600, ["12:00", "12:02", "12:04", "12:06", "12:08", "12:10"]),
            (86_400, ["12:00", "18:00", "21 Nov", "06:00", "12:00"]),
            (6 * 86_400, ["21 Nov", "22 Nov", "23 Nov", "24 Nov", "25 Nov", "26 Nov"]),
        ],
    )
    def test_times_are_round_and_of_day(self, span, expected):
        noon = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
        assert [name for _, name in scales.clock_ticks(noon, noon + span, 6, UTC)] == expected

    def test_days_begin_at_midnight_there_also_when_the_clocks_change(self):
        berlin = ZoneInfo("Europe/Berlin")
        start = datetime(2026, 10, 22, 12, tzinfo=berlin).timestamp()
        found = scales.clock_ticks(start, start + 8 * 86_400, 9, berlin)
        assert all(datetime.fromtimestamp(at, berlin).hour == 0 for at, _ in found)
        assert [name for _, name in found][:4] == ["23 Oct", "24 Oct", "25 Oct", "26 Oct"]

    def test_an_axis_says_whose_time_it_shows(self):
        noon = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
        berlin = ZoneInfo("Europe/Berlin")
        assert scales.clock_title(noon, berlin, 300) == "time, Europe/Berlin"
        assert scales.clock_title(noon, berlin, 90) == "Europe/Berlin"
        assert scales.clock_title(noon, berlin, 20) == "CET"
        assert scales.clock_title(noon, UTC, 300) == "time, UTC"


class TestSmoothing:
    def test_it_begins_and_ends_where_the_points_do(self):
        falling = [Loss(x, math.exp(-x / 20)) for x in range(100)]
        line = smoothed(falling, 0.8)
        for end in (0, -1):
            assert line[end].x == falling[end].x
            assert line[end].loss == pytest.approx(falling[end].loss, abs=0.02)
        assert all(a.loss > b.loss for a, b in itertools.pairwise(line))

    def test_noise_becomes_less(self):
        noisy = [Loss(x, 1 + (-1) ** x) for x in range(100)]
        assert all(abs(point.loss - 1) < 0.1 for point in smoothed(noisy, 1.0)[10:-10])

    def test_without_any_there_is_no_line(self):
        assert smoothed([Loss(x, x) for x in range(9)], 0.0) == []


class TestMarks:
    def test_neighbours_of_one_kind_are_one_and_tell_all(self):
        marks = [Mark(at, "grow", f"grew {at}") for at in (1, 2, 3, 50)]
        assert [mark.text for mark in gathered(marks, float)] == ["3 times: grew 1; grew 2; grew 3", "grew 50"]

    def test_of_many_those_that_matter_stay(self):
        marks = [Mark(at * 10, "checkpoint", "c") for at in range(200)] + [Mark(999, "failure", "worker 1 was lost")]
        kept = gathered(marks, float)
        assert len(kept) == MOST_MARKS
        assert any(mark.kind == "failure" for mark in kept)
