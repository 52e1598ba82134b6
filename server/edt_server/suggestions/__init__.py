"""Own where the values of a trial come from: Optuna's samplers and the plug-ins of users, each in a process of its own.

Never: a decision about a trial, the store, or Optuna and code of a plug-in in the server's own process.

Read first: `questions.py`, then `suggestions.py` (the server's side) and `suggester.py` (the process with Optuna).
"""

from edt_server.suggestions.algorithms import ALGORITHMS, check_algorithm
from edt_server.suggestions.questions import Ask, Plugin, Suggested, Suggestion, seed_of
from edt_server.suggestions.suggestions import Suggestions

__all__ = [
    "ALGORITHMS",
    "Ask",
    "Plugin",
    "Suggested",
    "Suggestion",
    "Suggestions",
    "check_algorithm",
    "seed_of",
]
