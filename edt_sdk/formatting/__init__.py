"""Own the format of figures, times and tables in HTML and plain text, one format for each. Pure.

Never: knowledge of jobs.

Read first: `number_words.py`, then `html_table.py`.
"""

__all__ = [
    "front_end",
    "html_table",
    "local_zone",
    "moments",
    "number_words",
    "text_bars",
    "text_chart",
    "text_table",
]
