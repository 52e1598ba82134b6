"""Own the elastic engine: whatever the number of workers, a training ends with the same bits.

The modules here are its programs: `worker.py`, `driver.py`, `script.py`, and `zygote.py`, which forks the others.

Never: scheduling or HTTP.

Read first: `member/loop.py`, then `update/update.py` and `exchange/`.
"""

__all__ = ["zygote"]
