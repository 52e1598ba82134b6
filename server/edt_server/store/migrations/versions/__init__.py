"""One file a revision, named after its number and what it does. A released one is never edited."""
