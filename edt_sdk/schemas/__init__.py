"""What crosses a process boundary: job specifications, messages, events, errors and the places of files.

Every other package may import this one; it imports nothing of ours and neither torch nor numpy. Messages are msgspec
structs, so a malformed one is refused where it arrives, with the path of the wrong field.
"""
