"""Own the format of figures, times and tables in HTML and plain text, one format for each. Pure.

Never: knowledge of jobs.

Read first: `number_words.py`, then `tables.py`.
"""

__all__ = ["control_characters", "front_end", "moments", "number_words", "tables", "text_chart"]
