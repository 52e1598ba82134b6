"""`pyedt.fabric_model`, as WMLA 4.8 named it: `FabricModel` of `edt_sdk.fabric`."""

from edt_sdk.announcement import announce
from edt_sdk.fabric import FabricModel

__all__ = ["FabricModel"]

announce()
