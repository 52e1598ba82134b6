"""The package of `torchelastic.distributed.launch`."""
