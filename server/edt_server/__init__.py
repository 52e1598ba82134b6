"""Scheduler, job store and supervisors: decides who trains on which slots, and keeps that true over crashes.

Knows neither the web nor torch; `edt_jupyter` puts HTTP in front of it.
"""
