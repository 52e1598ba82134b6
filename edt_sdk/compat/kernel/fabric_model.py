"""`fabric_model`, the module that WMLA's model code imports: `FabricModel` of `edt_sdk.fabric`."""

from edt_sdk.fabric import FabricModel, announce

__all__ = ["FabricModel"]

announce()
