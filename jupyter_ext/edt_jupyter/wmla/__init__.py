"""WMLA's REST routes, thin: each reads a request as IBM's clients send it, and asks the same service as `/edt/api`."""
