"""Register `torchrun --rdzv-backend=edt` with torch (entry point `torchrun.handlers`).

torch loads this module whenever its elastic part is imported, in any program. So it imports nothing early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def backend() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return the factory of the handler."""
    return _create


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    from edt_sdk.torchrun.rendezvous import create_handler

    return create_handler(parameters)
