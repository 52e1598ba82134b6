"""Provide `pyedt`, the package name of WMLA 4.8: see `pyedt.fabric_model`."""
