"""Own the validation job, which only tests a trained model (decision 031).

Never: a change of weights.

Read first: `step.py`, then `tally.py`.
"""

__all__ = ["step", "tally"]
