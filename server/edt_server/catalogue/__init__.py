"""The catalogue: data sets and models under names, and their trainings as ordinary jobs (decision 026)."""
