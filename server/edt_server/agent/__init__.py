"""One small process per host: starts and reaps there what the server and the supervisors of other hosts ask for.

`guard.py` sees to it that nothing outlives an agent, `host.py` is the agent, `outpost.py` the process below it that has
one job's workers of this host, `client.py` the other end of both.
"""
