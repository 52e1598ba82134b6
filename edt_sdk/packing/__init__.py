"""Own how a source becomes a package: which files belong to it, and how they travel.

It stands on the standard library, pathspec and the schemas. The SDK packs what a notebook submits and a Jupyter server
packs what its user picks, by the same code.

Never: the network.

Read first: `sources.py` (which files), then `archive.py`.
"""

__all__ = ["archive", "cell_needs", "cells", "data_files", "sources", "table", "upload"]
