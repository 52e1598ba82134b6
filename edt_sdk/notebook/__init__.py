"""Own what belongs to a notebook: the magics, their completion, and a training that runs in a cell.

Never: an import of torch or ipywidgets when the magics are loaded.

Read first: `magics.py`, then `live_cell.py`.
"""

__all__ = ["live_cell", "magics"]
