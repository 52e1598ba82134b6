"""What torch loads to know of `torchrun --rdzv-backend=edt` (entry point `torchrun.handlers`).

It does so whenever its elastic part is imported, in whatever program: so nothing is imported here before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def backend() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What makes a handler."""
    return _create


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    from edt_sdk.torchrun.rendezvous import create_handler

    return create_handler(parameters)
