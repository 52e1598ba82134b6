"""Data sets in MNIST's file format, read the way model code does it: four files below `<root>/MNIST/raw`."""

import os

import numpy as np
import torch


class Digits(torch.utils.data.Dataset):
    """What torchvision's MNIST with ToTensor gives: (float image [1, 28, 28] in 0 … 1, class)."""

    def __init__(self, root, train=True):
        kind = "train" if train else "t10k"
        folder = os.path.join(root, "MNIST", "raw")
        self.images = read(os.path.join(folder, f"{kind}-images-idx3-ubyte"))
        self.labels = read(os.path.join(folder, f"{kind}-labels-idx1-ubyte"))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index].astype(np.float32) / 255)
        return image.unsqueeze(0), int(self.labels[index])


def read(path):
    """An idx file of bytes: magic number, sizes as big-endian words, values."""
    with open(path, "rb") as file:
        dimensions = file.read(4)[3]
        shape = np.frombuffer(file.read(4 * dimensions), dtype=">u4")
        return np.frombuffer(file.read(), dtype=np.uint8).reshape(tuple(shape))
