"""Plugins of the whole suite; pytest takes them from the top folder only. Their fixtures are used in `tests/jupyter`."""

pytest_plugins = ("pytest_jupyter.jupyter_server",)
