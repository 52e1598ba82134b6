"""A script that says how many workers its training wants from now on."""

import pytest

from edt_sdk.schemas.wire import control, link
from edt_server.supervisor.state_machines.events import DRIVER, Note

from .story import Story


@pytest.fixture
def story():
    story = Story()
    story.allocate(1, 0)
    story.driver()
    return story


@pytest.mark.parametrize(("wanted", "reported"), [(2, 2), (4, 4), (9, 4), (0, 1)])
def test_the_server_hears_of_it_within_what_the_training_can_use(story, wanted, reported):
    story.train()
    story.say(DRIVER, link.Scaled(training=0, workers=wanted))
    assert story.reports[-1] == control.TrainingScaled(training=0, workers=reported)


def test_without_a_training_or_for_another_one_it_means_nothing(story):
    story.say(DRIVER, link.Scaled(training=0, workers=2))
    assert story.of(Note)
    story.train()
    before = list(story.reports)
    story.say(DRIVER, link.Scaled(training=1, workers=2))
    assert story.reports == before
