#!/usr/bin/env python3
"""The round trip: a PyTorch model is exported, trained by Weir, and its weights are loaded back by name.

    python examples/from_pytorch.py export examples/net.onnx
    weir train examples/from_pytorch.yaml
    python examples/from_pytorch.py load weir-out/from-pytorch/model.safetensors

Needs torch, onnx and safetensors; `load` also evaluates on Fashion-MNIST's test set."""
import gzip
import sys

import numpy
import torch
from torch import nn

DATA = "/usr/share/datasets/fashion-mnist"


class Net(nn.Module):
    """Any model whose operators Weir knows: the names of its parameters are the names of the tensors."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Dropout(0.25),
                                  nn.Linear(64, 10))

    def forward(self, image):
        return self.head(self.features(image))


def export(path):
    torch.manual_seed(0)
    torch.onnx.export(Net(), (torch.zeros(2, 1, 28, 28),), path, training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False, input_names=["image"], output_names=["logits"],
                      dynamic_axes={"image": {0: "batch"}}, opset_version=17, dynamo=False)
    print("wrote", path)


def load(path):
    from safetensors.torch import load_file
    net = Net()
    missing, unexpected = net.load_state_dict(load_file(path), strict=False)
    assert not unexpected, unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing), missing
    net.eval()
    with gzip.open(DATA + "/t10k-images-idx3-ubyte.gz") as file:
        images = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(DATA + "/t10k-labels-idx1-ubyte.gz") as file:
        labels = torch.tensor(numpy.frombuffer(file.read(), numpy.uint8, offset=8).astype(numpy.int64))
    with torch.no_grad():
        x = (torch.tensor(images, dtype=torch.float32) / 255 - 0.2860) / 0.3530
        right = (net(x).argmax(1) == labels).float().mean().item()
    print(f"PyTorch with Weir's weights: accuracy {100 * right:.2f} %")


if __name__ == "__main__":
    {"export": export, "load": load}[sys.argv[1]](sys.argv[2])
