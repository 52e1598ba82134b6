"""Plug-ins as WMLA's users write them: the two with the habits of IBM's samples, and some that go wrong."""

RANDOM = """
import numpy as np
from plugins.core.logger import logger
from plugins.core.base_plugin_opt import BasePluginOptimizer

class PluginOptimizer(BasePluginOptimizer):
    def __init__(self, name, hyper_parameters, **kwargs):
        super(PluginOptimizer, self).__init__(name, hyper_parameters, **kwargs)
        logger.info("all hyper parameters: {}".format(hyper_parameters))
        self._hyper_parameters = hyper_parameters
        self._history = []
        if kwargs.get("random_seed"):
            np.random.seed(int(kwargs.get("random_seed")))

    def search(self, number_samples, last_exp_results):
        logger.debug("last results: {}".format(last_exp_results))
        if not last_exp_results is None and len(last_exp_results) > 0:
            self._history.extend(last_exp_results)
        return [{hp.get("name"): self._one(hp) for hp in self._hyper_parameters} for _ in range(number_samples)]

    def _one(self, hp):
        if hp.get("type") == "Range" and hp.get("dataType") == "DOUBLE":
            return hp.get("minDbVal") + np.random.rand() * (hp.get("maxDbVal") - hp.get("minDbVal"))
        if hp.get("type") == "Range":
            return np.random.randint(hp.get("minIntVal"), hp.get("maxIntVal"))
        values = {"DOUBLE": "discreteDbVal", "INT": "discreteIntVal"}.get(hp.get("dataType"), "discreateStrVal")
        return hp.get(values)[np.random.randint(len(hp.get(values)))]

    def get_state(self):
        return {"rng_state": np.random.get_state()}

    def set_state(self, state_dict):
        np.random.set_state(state_dict.get("rng_state"))
"""

GRID = """
from itertools import product
import numpy as np
from plugins.core.base_plugin_opt import BasePluginOptimizer

class PluginOptimizer(BasePluginOptimizer):
    def __init__(self, name, hyper_parameters, **kwargs):
        super(PluginOptimizer, self).__init__(name, hyper_parameters, **kwargs)
        axes = {}
        for hp in hyper_parameters:
            if hp["type"] == "Discrete":
                axes[hp["name"]] = hp.get("discreteDbVal") or hp.get("discreteIntVal") or hp.get("discreateStrVal")
            elif hp["dataType"] == "INT":
                axes[hp["name"]] = list(range(hp["minIntVal"], hp["maxIntVal"], 1))
            else:
                axes[hp["name"]] = np.arange(hp["minDbVal"], hp["maxDbVal"], 0.01)
        keys, values = zip(*sorted(axes.items()))
        self.cube = [dict(zip(keys, each)) for each in product(*values)]
        self.at = 0

    def search(self, number_samples, last_exp_results=None):
        found = self.cube[self.at : self.at + number_samples]
        self.at += len(found)
        return found
"""

_HEAD = "from plugins.core.base_plugin_opt import BasePluginOptimizer\nclass PluginOptimizer(BasePluginOptimizer):\n"


def searching(body, head=""):
    """A plug-in with this body of `search(self, n, last)`."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"{head}\n{_HEAD}    def search(self, n, last):\n{lines}\n"
