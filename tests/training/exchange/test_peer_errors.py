"""What the log says of a lost member."""

from __future__ import annotations

import pytest

from edt_sdk.training.exchange.peer_errors import said

GLOO = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1:35734]: Connection "
    "reset by peer. This is typically caused by a remote worker hanging or bugs in the application. GLHF!"
)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (GLOO, "Read error [127.0.0.1:35734]: Connection reset by peer"),
        ("NCCL communicator was aborted on rank 1.", "NCCL communicator was aborted on rank 1"),
        ("", "a member has left"),
    ],
)
def test_a_lost_member_is_said_without_the_places_in_the_source_of_a_library(text, short):
    assert said(RuntimeError(text)) == short
