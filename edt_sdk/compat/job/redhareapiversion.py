"""Name the interface of kernels that `redhareapi` has. Kernels import this module first."""

__version__ = "2.3.0"
