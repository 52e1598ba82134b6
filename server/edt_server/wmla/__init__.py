"""Between WMLA's words and ours: pure translations; no web, no torch, no second truth."""
