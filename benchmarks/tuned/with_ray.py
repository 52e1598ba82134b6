"""The same search by Ray Tune: ASHA with Optuna's sampler, one processor a trial. Prints what each epoch reached.

Run by `benchmarks/search_speed.py`, in a network of its own, with Ray on the path.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import ray
import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent))

parser = argparse.ArgumentParser()
parser.add_argument("--slots", type=int, required=True)
parser.add_argument("--trials", type=int, required=True)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--pause", type=float, required=True)
parser.add_argument("--folder", required=True)
options = parser.parse_args()


def trial(values):
    """Train, and report the accuracy after each epoch."""
    sys.path.insert(0, str(Path(options.folder).resolve() / "code"))
    from model import BATCH, datasets, network, optimizer_of

    torch.set_num_threads(1)
    train, test = datasets(options.pause)
    model = network(values["width"])
    optimizer = optimizer_of(model, values["lr"], values["momentum"])
    loss = torch.nn.functional.cross_entropy
    for _ in range(options.epochs):
        model.train()
        for x, y in DataLoader(train, BATCH, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(test, 360))
        tune.report({"accuracy": right / len(test), "at": time.time()})


class Times(tune.Callback):
    """Keeps when each result arrived."""

    def __init__(self):
        self.results = []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        """Keep a result."""
        self.results.append((time.time(), result["accuracy"], result["training_iteration"]))


def main():
    """Search."""
    ray.init(num_cpus=options.slots, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    ray.get([ray.remote(lambda: __import__("torch").zeros(1)).remote() for _ in range(options.slots)])  # warm
    space = {
        "lr": tune.loguniform(1e-3, 1.0),
        "momentum": tune.uniform(0.0, 0.95),
        "width": tune.choice([8, 16, 32]),
    }
    times = Times()
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="accuracy", mode="max", num_samples=options.trials, search_alg=OptunaSearch(seed=options.seed),
            scheduler=ASHAScheduler(max_t=options.epochs, grace_period=1, reduction_factor=3),
        ),
        run_config=tune.RunConfig(storage_path=options.folder, callbacks=[times], verbose=0),
    )  # fmt: skip
    begun = time.time()
    tuner.fit()
    print(json.dumps({"seconds": time.time() - begun, "results": [(at - begun, a, n) for at, a, n in times.results]}))


if __name__ == "__main__":
    main()
