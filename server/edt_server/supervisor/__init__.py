"""One job's supervisor: parent of its driver and workers, owner of its generations and log files.

A detached process, `python -m edt_server.supervisor <launch.json>`. It decides nothing about slots (the server does)
and never imports torch or user code. It goes on without a server with the slots it has.
"""
