"""Provide `callbacks`, a module that WMLA's model code imports: the base classes of `edt_sdk.callbacks`."""

from edt_sdk.callbacks import Callback, LoggerCallback

__all__ = ["Callback", "LoggerCallback"]
