"""Own what pictures are made of: paper, scales, lettering, colours, marks, and long rows in few points. Pure.

Never: a whole picture, which is a file of `edt_sdk.pictures`.

Read first: `look.py`, then `paper.py`.
"""

__all__ = ["card_pictures", "colours", "extremes", "lettering", "look", "marks", "panel", "paper", "scales", "trials"]
