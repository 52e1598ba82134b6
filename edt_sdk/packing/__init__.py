"""Own the conversion of a source to a package: the files that belong to it, and their transport.

It uses the standard library, pathspec and the schemas. The SDK packs what a notebook submits, and a Jupyter server
packs what its user selects, with the same code.

Never: the network.

Read first: `sources.py` (which files), then `archive.py`.
"""

__all__ = ["archive", "cell_needs", "cells", "data_files", "preflight", "sources", "table", "upload"]
