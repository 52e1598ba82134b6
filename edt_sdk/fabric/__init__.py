"""Own `FabricModel`: the object through which model code trains elastically.

Never: the training itself, which is `edt_sdk.training`.

Read first: `fabric.py`, then `checks.py`.
"""

from edt_sdk.fabric.fabric import FabricModel

__all__ = ["FabricModel"]
