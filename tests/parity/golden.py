#!/usr/bin/env python3
"""Makes golden.json: loss and learning rate per step of PyTorch in float64, on the same model, samples and optimizer
as the specs that test_parity.py trains. Needs tests/parity/requirements.txt; run as

    python tests/parity/golden.py build/weir > tests/parity/golden.json

Samples are taken in file order, so nothing of ours decides what PyTorch sees but the model file, which
`weir model` writes."""
import gzip
import json
import subprocess
import sys
import tempfile

import numpy
import onnx
import torch

DATA = "/usr/share/datasets/fashion-mnist"
CASES = {
    "mlp": {
        "model": ["mlp", "--hidden", "64,32", "--seed", "11"],
        "steps": 50, "batch": 64, "microbatches": 4, "warmup_steps": 10,
        "optimizer": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0005},
    },
    "lenet-batch-norm": {
        "model": ["lenet", "--channels", "8,16", "--hidden", "32", "--batch-norm", "--seed", "12"],
        "steps": 50, "batch": 32, "microbatches": 1, "warmup_steps": 10,
        "optimizer": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0005},
    },
}


def read_data(samples):
    with gzip.open(DATA + "/train-images-idx3-ubyte.gz") as file:
        images = numpy.frombuffer(file.read(16 + samples * 784), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(DATA + "/train-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(8 + samples), numpy.uint8, offset=8)
    x = (torch.tensor(images, dtype=torch.float64) * 0.00392156862745098 - 0.2860) / 0.3530
    return x, torch.tensor(labels, dtype=torch.int64)


class Network(torch.nn.Module):
    """The layers of an ONNX file that `weir model` wrote, in order, as PyTorch modules."""

    def __init__(self, model):
        super().__init__()
        weights = {tensor.name: torch.tensor(onnx.numpy_helper.to_array(tensor), dtype=torch.float64)
                   for tensor in model.graph.initializer}
        layers = []
        for node in model.graph.node:
            attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
            own = [weights[name] for name in node.input if name in weights]
            if node.op_type == "Gemm":
                layer = torch.nn.Linear(own[0].shape[1], own[0].shape[0])
            elif node.op_type == "Conv":
                layer = torch.nn.Conv2d(own[0].shape[1], own[0].shape[0], own[0].shape[2:],
                                        padding=attributes["pads"][0])
            elif node.op_type == "BatchNormalization":
                layer = torch.nn.BatchNorm2d(len(own[0]))
            else:
                layer = {"Relu": torch.nn.ReLU, "Flatten": torch.nn.Flatten, "Identity": torch.nn.Identity,
                         "MaxPool": lambda: torch.nn.MaxPool2d(2)}[node.op_type]()
            if own:
                layer.double()
                with torch.no_grad():
                    layer.weight.copy_(own[0])
                    layer.bias.copy_(own[1])
            layers.append(layer)
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


def train(weir, case):
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        subprocess.run([weir, "model", *case["model"], "-o", file.name], check=True, stdout=subprocess.DEVNULL)
        network = Network(onnx.load(file.name))
    steps, batch, warmup = case["steps"], case["batch"], case["warmup_steps"]
    x, labels = read_data(steps * batch)
    optimizer = torch.optim.SGD(network.parameters(), **case["optimizer"])
    schedules = torch.optim.lr_scheduler
    schedule = schedules.SequentialLR(optimizer, [
        schedules.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1),
        schedules.CosineAnnealingLR(optimizer, steps - warmup)], [warmup])
    losses, rates = [], []
    for step in range(steps):
        part = slice(step * batch, (step + 1) * batch)
        rates.append(optimizer.param_groups[0]["lr"])
        loss = torch.nn.functional.cross_entropy(network(x[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return dict(case, losses=losses, rates=rates)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"torch": torch.__version__,
                      "cases": {name: train(sys.argv[1], case) for name, case in CASES.items()}}, indent=1))
