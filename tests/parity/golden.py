#!/usr/bin/env python3
"""Makes golden.json and graphs/*.onnx: loss and learning rate per step of PyTorch in float64, on the same model,
samples and optimizer as the specs that test_parity.py trains. Needs tests/parity/requirements.txt; run as

    python tests/parity/golden.py build/weir [CASE...]

Samples are taken in file order, so nothing of ours decides what PyTorch sees but the model file that `weir model`
writes. The other graphs are PyTorch's own exports without their weights, which are made up by name (toy.py)."""
import gzip
import json
import os
import subprocess
import sys
import tempfile

import numpy
import onnx
import torch
import torch.nn.functional as F
from torchvision.transforms import v2

import export
import models
import toy

torch.set_flush_denormal(True)  # as Weir computes

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = "/usr/share/datasets/fashion-mnist"
IMAGES = {
    "mlp": {
        "model": ["mlp", "--hidden", "64,32", "--seed", "11"],
        "steps": 50, "batch": 64, "microbatches": 4, "warmup_steps": 10, "loss": "cross_entropy",
        "optimizer": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0005},
    },
    "mlp-mixup": {  # so sharp that a share is 1/2, whatever the generator
        "model": ["mlp", "--hidden", "64,32", "--seed", "13"],
        "steps": 50, "batch": 64, "microbatches": 4, "warmup_steps": 10, "loss": "cross_entropy",
        "loss_options": {"label_smoothing": 0.1, "weight": [1, 2, 0.5, 1, 1, 0.25, 1, 3, 1, 1]},
        "mixup": {"alpha": 1e15}, "optimizer": {"lr": 0.1, "momentum": 0.9},
    },
    "lenet-batch-norm": {
        "model": ["lenet", "--channels", "8,16", "--hidden", "32", "--batch-norm", "--seed", "12"],
        "steps": 50, "batch": 32, "microbatches": 1, "warmup_steps": 10, "loss": "cross_entropy",
        "optimizer": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0005},
    },
}
# (exporter, batch) of the graphs that are kept of a model; a fixed batch is that of a microbatch.
GRAPHS = {
    "resnet": [("old", "dynamic"), ("new", "fixed")],
    "mobilenet_v2": [("new", "dynamic")],
    "mobilenet_v3": [("old", "dynamic")],
    "efficientnet": [("new", "dynamic")],
    "densenet": [("old", "fixed")],
    "unet": [("old", "dynamic"), ("new", "dynamic")],
    "autoencoder": [("old", "fixed"), ("optimized", "dynamic")],
    "mixer": [("old", "dynamic")],
    "vit": [("new", "dynamic")],
    "gpt": [("old", "dynamic"), ("new", "fixed"), ("optimized", "dynamic")],
    "bert": [("old", "dynamic"), ("optimized", "fixed")],
    "translator": [("new", "dynamic")],
    "lstm": [("old", "dynamic"), ("optimized", "fixed")],
    "gru": [("old", "fixed"), ("new", "dynamic")],
    "dlrm": [("old", "dynamic"), ("new", "dynamic")],
    "standardised": [("old", "dynamic"), ("new", "dynamic")],
    "folded": [("new", "dynamic")],
    "covariance": [("old", "dynamic")],
    "padded": [("old", "dynamic"), ("new", "dynamic")],
    "bags": [("old", "dynamic"), ("new", "dynamic")],
}
STEPS, BATCH = 50, 16
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"


def read_images(case):
    samples = case["steps"] * case["batch"]
    with gzip.open(DATA + "/train-images-idx3-ubyte.gz") as file:
        images = numpy.frombuffer(file.read(16 + samples * 784), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(DATA + "/train-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(8 + samples), numpy.uint8, offset=8)
    x = (torch.tensor(images, dtype=torch.float64) * 0.00392156862745098 - 0.2860) / 0.3530
    return [x, torch.tensor(labels, dtype=torch.int64)]


class Network(torch.nn.Module):
    """The layers of an ONNX file that `weir model` wrote, in order, as PyTorch modules; named: the parameters by their
    names there."""

    def __init__(self, model):
        super().__init__()
        weights = {tensor.name: torch.tensor(onnx.numpy_helper.to_array(tensor), dtype=torch.float64)
                   for tensor in model.graph.initializer}
        layers, self.named = [], {}
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
                names = [name for name in node.input if name in weights]
                self.named.update(zip(names, (layer.weight, layer.bias)))
            layers.append(layer)
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


def build_network(weir, case):
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        subprocess.run([weir, "model", *case["model"], "-o", file.name], check=True, stdout=subprocess.DEVNULL)
        return Network(onnx.load(file.name))


def build_small(name):
    """The module with its made-up weights."""
    module = models.SMALL[name].build().train()
    with torch.no_grad():
        for key, parameter in module.named_parameters():
            parameter.copy_(torch.tensor(toy.weights(key, tuple(parameter.shape))))
    return module


def strip(model, module):
    """Leaves of an export what the graph needs: no data of weights, but where it comes from; no notes but which
    initializers are parameters."""
    parameters = {key: value.detach().numpy() for key, value in module.named_parameters()}
    for tensor in model.graph.initializer:
        data = onnx.numpy_helper.to_array(tensor)
        for key, value in parameters.items():
            is_copy, is_transposed = numpy.array_equal(data, value), numpy.array_equal(data, value.T)
            if data.size > 1 and (is_copy or is_transposed):
                tensor.ClearField("raw_data")
                tensor.doc_string = toy.recipe(key, not is_copy)
    names = {tensor.name for tensor in model.graph.initializer}
    infos = [info for info in model.graph.value_info if info.name in names]
    del model.graph.value_info[:], model.metadata_props[:], model.graph.metadata_props[:]
    for info in infos:
        kept = [entry for entry in info.metadata_props if entry.key == KIND]
        del info.metadata_props[:]
        info.metadata_props.extend(kept)
        if kept:
            model.graph.value_info.append(info)
    strip_nodes(model.graph)
    return model


def strip_nodes(graph):
    """No notes on nodes, those of branches and loops either."""
    for node in graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                strip_nodes(attribute.g)


def write_graphs(name, case):
    """Exports the model as GRAPHS says; returns the files' names."""
    os.makedirs(os.path.join(HERE, "graphs"), exist_ok=True)
    names = []
    for exporter, batch in GRAPHS[name]:
        module = build_small(name)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            export.export(models.SMALL[name], path, exporter, batch, case["batch"] // case["microbatches"], module)
            model = strip(onnx.load(path), module)
        names.append(f"{name}-{exporter}.onnx")
        onnx.save(model, os.path.join(HERE, "graphs", names[-1]))
    return names


def describe_small(name):
    small = models.SMALL[name]
    return {"task": small.data.func.__name__, "task_options": small.data.keywords, "steps": STEPS, "batch": BATCH,
            "microbatches": 1 if small.has_batch_norm else 4, "warmup_steps": 10, "loss": small.loss,
            "optimizer": {"lr": small.lr, "momentum": 0.9},
            **({"frozen_rows": small.frozen_rows} if small.frozen_rows else {})}


def mix(case, inputs, labels):
    """What the transform makes of each microbatch."""
    mixup = v2.MixUp(**case["mixup"], num_classes=10)
    parts = [mixup(*part) for part in zip(inputs.chunk(case["microbatches"]), labels.chunk(case["microbatches"]))]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]).double()


def loss_of(case, output, labels):
    if case["loss"] == "cross_entropy" and output.dim() == 3:
        output = output.transpose(1, 2)
    if "loss_options" in case:
        options = {key: torch.tensor(value, dtype=torch.float64) if key == "weight" else value
                   for key, value in case["loss_options"].items()}
        return F.cross_entropy(output, labels, **options)
    return {"cross_entropy": F.cross_entropy, "mse": F.mse_loss,
            "bce_with_logits": F.binary_cross_entropy_with_logits}[case["loss"]](output, labels)


def train(network, columns, case):
    steps, batch, warmup = case["steps"], case["batch"], case["warmup_steps"]
    optimizer = torch.optim.SGD(network.parameters(), **case["optimizer"])
    schedules = torch.optim.lr_scheduler
    schedule = schedules.SequentialLR(optimizer, [
        schedules.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1),
        schedules.CosineAnnealingLR(optimizer, steps - warmup)], [warmup])
    losses, rates = [], []
    for step in range(steps):
        *inputs, labels = [column[step * batch:(step + 1) * batch] for column in columns]
        if "mixup" in case:
            inputs[0], labels = mix(case, inputs[0], labels)
        rates.append(optimizer.param_groups[0]["lr"])
        loss = loss_of(case, network(*inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return dict(case, losses=losses, rates=rates)


def train_small(name):
    case = describe_small(name)
    columns = [torch.tensor(column) for column in models.SMALL[name].data(STEPS * BATCH).values()]
    columns = [column.double() if column.is_floating_point() else column for column in columns]
    return dict(train(build_small(name).double(), columns, case), graphs=write_graphs(name, case))


def read_golden():
    with open(os.path.join(HERE, "golden.json")) as file:
        return json.load(file)["cases"]


def main():
    """Those cases that are named anew, or all of them."""
    torch.set_num_threads(1)
    wanted = sys.argv[2:] or [*IMAGES, *models.SMALL]
    cases = read_golden() if sys.argv[2:] else {}
    for name in wanted:
        if name in IMAGES:
            cases[name] = train(build_network(sys.argv[1], IMAGES[name]), read_images(IMAGES[name]), IMAGES[name])
        else:
            cases[name] = train_small(name)
        print(f"{name}: {cases[name]['losses'][0]:.4f} -> {cases[name]['losses'][-1]:.4f}", flush=True)
    with open(os.path.join(HERE, "golden.json"), "w") as file:
        lines = ",\n".join(f'  "{name}": {json.dumps(case)}' for name, case in cases.items())
        file.write(f'{{"torch": "{torch.__version__}", "cases": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
