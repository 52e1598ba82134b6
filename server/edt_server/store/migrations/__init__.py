"""Numbered changes of the tables, run by `edt_server.store.schema`."""
