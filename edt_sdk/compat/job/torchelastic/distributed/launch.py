"""Run `python -m torchelastic.distributed.launch`: torchrun, with the one option that torchrun has dropped."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torch.distributed.run import main as _torchrun

# It started a separate server for the rendezvous.
_GONE = frozenset({"--with_etcd", "--with-etcd"})


def main(args: Sequence[str] | None = None) -> None:
    """Run torchrun. `args` default to those of the command line."""
    words = list(sys.argv[1:] if args is None else args)
    _torchrun([word for word in words if word not in _GONE])


if __name__ == "__main__":
    main()
