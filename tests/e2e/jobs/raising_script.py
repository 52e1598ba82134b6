"""A script that raises before it trains."""

print(1 / 0)
