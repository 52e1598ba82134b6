"""What is added to an exception of the user's code: layer and shape, or how to install a module."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.fields import near
from edt_sdk.training.user import explanation


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 32)
        self.head = nn.Sequential(nn.Linear(64, 10), nn.ReLU())

    def forward(self, x):
        return self.head(self.body(x))


class Viewing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, *, mask=None):
        return self.layer(x.view(-1, 5))


class Badly(nn.Linear):
    def __repr__(self):
        raise RuntimeError("not even this")


def raised(call, *args, **kwargs):
    with pytest.raises(Exception, match=r"\w") as error:
        call(*args, **kwargs)
    return error.value


def told(model, *args, called="train.py, line 23", code=Path("/nowhere"), **kwargs):
    return explanation.layer(raised(model, *args, **kwargs), model, called, code)


def test_the_layer_has_its_name_and_the_shape_it_got():
    here = Path(__file__).parent
    assert told(Net(), torch.zeros(16, 8), code=here) == (
        "It was raised in layer model.head[0], Linear(in_features=64, out_features=10, bias=True), "
        "which got a tensor of 16×32."
    )
    assert told(Viewing(), torch.zeros(3, 4), mask=torch.zeros(2), code=here) == (
        "It was raised in the model itself, Viewing, which got a tensor of 3×4 and a tensor of 2."
    )


def test_without_a_line_of_the_user_the_call_of_train_is_named():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    assert told(model, torch.zeros(16, 4, 8)) == (
        "It was raised in layer model[1], Linear(in_features=64, out_features=10, bias=True), "
        "which got a tensor of 16×32. "
        "The model is the one of the train() call in train.py, line 23."
    )
    assert "train() call" not in told(model, torch.zeros(16, 4, 8), called="")


def test_a_loss_is_no_layer():
    error = raised(nn.NLLLoss(), torch.zeros(4, 3), torch.zeros(5, dtype=torch.long))
    text = explanation.layer(error, Net(), "", Path("/nowhere"))
    assert text == "It was raised in NLLLoss(), which got a tensor of 4×3 and a tensor of 5."


def test_a_traceback_is_without_the_wrappers_of_torch():
    text = explanation.traceback_text(raised(Net(), torch.zeros(16, 8)))
    assert "_call_impl" not in text
    assert text.count("in forward") > 1
    assert text.startswith("Traceback (most recent call last):")
    # A fault in our own code keeps its frames.
    assert "in near" in explanation.traceback_text(raised(near, None, ()))


def test_nothing_is_added_outside_of_layers():
    assert explanation.layer(raised(int, "x"), Net(), "train.py, line 1", Path("/")) == ""
    assert told(Badly(4, 4), torch.zeros(3, 3)) == ""


def test_a_missing_module(monkeypatch):
    error = raised(__import__, "albumentationz")
    text = explanation.missing_module(error)
    assert text.startswith(f"The job runs in {sys.executable}. Install it there: ")
    assert f"{sys.executable} -m pip install albumentationz " in text
    ours = Unprocessable("datasets_function raised it.")
    ours.__cause__ = error
    assert explanation.missing_module(ours) == text
    assert "direct cause" not in explanation.traceback_text(ours)
    assert explanation.traceback_text(ours).splitlines()[-1] == "ModuleNotFoundError: No module named 'albumentationz'"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    cv2 = ModuleNotFoundError("No module named 'cv2.gapi'", name="cv2.gapi")
    assert "pip install opencv-python" in explanation.missing_module(cv2)


def test_an_error_of_ours_shows_the_users_line_without_its_cause():
    def wrapped():
        try:
            int("x")
        except ValueError as error:
            raise Unprocessable("It cannot be sent.", hint="Leave it out.") from error

    text = explanation.traceback_text(raised(wrapped))
    assert 'raise Unprocessable("It cannot be sent."' in text
    assert "ValueError" not in text
    assert text.splitlines()[-1] == "Unprocessable: It cannot be sent. Leave it out."


def test_a_missing_part_of_an_installed_library_is_not_installed_again():
    assert explanation.missing_module(raised(__import__, "torch.not_there")) == ""
    assert explanation.missing_module(ValueError("x")) == ""


def test_sentences_are_joined_with_a_period():
    assert explanation.sentence("a", "", "B.") == "a. B."
    assert explanation.sentence("a.", "B.") == "a. B."
    assert explanation.sentence("a", "") == "a"
