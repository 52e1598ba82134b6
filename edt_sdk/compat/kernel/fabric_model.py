"""Provide `fabric_model`, a module that WMLA's model code imports: `FabricModel` of `edt_sdk.fabric.fabric`."""

from edt_sdk.fabric import FabricModel
from edt_sdk.http.announcement import announce

__all__ = ["FabricModel"]

announce()
