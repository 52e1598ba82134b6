"""A script that forgets to train."""

print("all done, it thinks")
