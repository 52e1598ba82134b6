"""Which JupyterLab, Notebook and widgets are opened together: each minor version that is supported, as pip installs it.

The first is the oldest of all there is, to the last digit, with the oldest Jupyter Server; that is what the bounds in
`pyproject.toml` and the installation guide mean. The others are what people have who keep to a minor version.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Combination:
    """What is installed beside jupyter-edt.

    Attributes:
        name: of its environment, short.
        jupyterlab, notebook: version specifiers.
        others: further requirements.
    """

    name: str
    jupyterlab: str
    notebook: str
    others: tuple[str, ...] = ()

    @property
    def requirements(self) -> tuple[str, ...]:
        """As pip takes them."""
        return (f"jupyterlab{self.jupyterlab}", f"notebook{self.notebook}", *self.others)


COMBINATIONS = (
    Combination(
        "4.2.0",
        "==4.2.0",
        "==7.2.0",
        ("jupyter-server==2.18.0", "ipywidgets==8.1.0", "jupyterlab-widgets==3.0.9", "ipykernel==6.29.0"),
    ),
    Combination("4.2", "==4.2.*", "==7.2.*"),
    Combination("4.3", "==4.3.*", "==7.3.*"),
    Combination("4.4", "==4.4.*", "==7.4.*"),
    Combination("4.5", "==4.5.*", "==7.5.*"),
    Combination("4.6", "==4.6.*", "==7.6.*"),
)
