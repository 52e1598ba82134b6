"""Scheduler, job store and supervisors: decide which job trains on which slots, and keep that true over crashes.

Neither the web nor torch is known here. `edt_jupyter` puts HTTP in front of it.
"""
