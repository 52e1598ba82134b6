"""`fabric_model`, the module that WMLA's model code imports: `FabricModel` of `edt_sdk.fabric`."""

from edt_sdk.announcement import announce
from edt_sdk.fabric import FabricModel

__all__ = ["FabricModel"]

announce()
