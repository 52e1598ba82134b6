"""A model that WMLA's console manages: everything it trains with comes from `pth_parameter_mgr`."""

import argparse
import glob
import os
import sys

import torch
import torch.nn.functional as F
from digits_idx import Digits
from fabric_model import FabricModel

train_data_dir = "/nowhere"


def getDatasets():
    # One of them as main found it, the other one as a worker does.
    return Digits(train_data_dir, train=True), Digits(pth_parameter_mgr.getTestData(False), train=False)


def initial_weights(folder):
    found = sorted(glob.glob(os.path.join(os.path.expanduser(folder), "*.pth"))) if folder else []
    final = [path for path in found if os.path.basename(path).startswith("model_epoch_final")]
    return (final or found or [""])[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--train_dir", type=str, default="")
    parser.add_argument("--weights", type=str, default="")
    args, unknown = parser.parse_known_args()
    sys.path.insert(0, args.train_dir + "/../")
    import pth_parameter_mgr

    train_data_dir = pth_parameter_mgr.getTrainData(False)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    weights = initial_weights(args.weights.strip())
    if weights:
        print("Initial weight file is " + os.path.basename(weights))
        model.load_state_dict(torch.load(weights, map_location=lambda storage, loc: storage))
    optimizer = pth_parameter_mgr.getOptimizer(model)
    edt_m = FabricModel(model, getDatasets, F.cross_entropy, optimizer)
    edt_m.train(pth_parameter_mgr.getEpoch(), pth_parameter_mgr.getTrainBatchSize(), 4)
