"""Provide `pyedt.fabric_model`, as WMLA 4.8 named it: `FabricModel` of `edt_sdk.fabric.fabric`."""

from edt_sdk.fabric import FabricModel
from edt_sdk.http.announcement import announce

__all__ = ["FabricModel"]

announce()
