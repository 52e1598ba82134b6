"""Contain `torchelastic.distributed.launch`."""
