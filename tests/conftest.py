"""Plugins of the whole suite: pytest takes them from the top folder only. Fixtures of `tests/jupyter` build on them."""

pytest_plugins = ("pytest_jupyter.jupyter_server",)
