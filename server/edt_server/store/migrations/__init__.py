"""Numbered changes of the tables; `edt_server.store.schema` runs them."""
