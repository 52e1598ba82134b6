"""Own torchrun scripts in a job: an agent around torch's own, and the processes of a script (decision 023).

Never: the decision which agents are in a round. The supervisor makes it.

Read first: `agent.py`, then `rendezvous.py`.
"""
