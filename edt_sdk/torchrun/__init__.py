"""Scripts that `torchrun` starts elsewhere, scaled by the job's supervisor (docs/decisions/023)."""
