#!/usr/bin/env python3
"""How far f32 is from float64 in training: the models of models.py, 50 steps each, of PyTorch in float64, PyTorch in
float32, and Weir in fp32 and fp32-fast, from the same weights on the same samples:

    python tests/parity/distance.py build/weir [MODEL...]

Prints for each the mean relative distance of a step's loss, and the distance of the trained parameters as a part of
the way that they have come, both from PyTorch in float64. Dropout is left out. Needs tests/parity/requirements.txt."""
import copy
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F

import export
import models

torch.set_flush_denormal(True)  # as Weir computes
torch.set_num_threads(1)

STEPS, BATCH, WARMUP = 50, 16, 5
DEFAULT = ("resnet18", "resnet50", "vgg11", "unet", "squeezenet")
PRECISIONS = ("fp32", "fp32-fast")


def loss_of(case, output, labels):
    if case.loss == "mse":
        return F.mse_loss(output, labels)
    return F.cross_entropy(output, labels)


def torch_run(case, module, columns, lr, dtype):
    """Losses by step, and the parameters at the end."""
    module = copy.deepcopy(module).to(dtype)
    optimizer = torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9)
    losses = []
    for step in range(STEPS):
        samples = [torch.tensor(column[step * BATCH:(step + 1) * BATCH]) for column in columns]
        samples = [sample.to(dtype) if sample.is_floating_point() else sample for sample in samples]
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, (step + 1) / WARMUP)
        optimizer.zero_grad()
        loss = loss_of(case, module(*samples[:-1]), samples[-1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach().double().numpy() for name, value in module.named_parameters()}


def read_tensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        body = file.read()
    return {name: numpy.frombuffer(body[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__" and entry["dtype"] == "F32"}


def our_run(weir, folder, case, names, precision, lr):
    inputs = ", ".join(f"{name}: {name}" for name in names[:-1])
    files = ", ".join(f"{name}: {name}.npy" for name in names)
    spec, out = os.path.join(folder, precision + ".yaml"), os.path.join(folder, precision)
    with open(spec, "w") as file:
        file.write(f"""name: distance
model: {{onnx: model.onnx, loss: {case.loss}, inputs: {{{inputs}}}}}
data: {{root: {folder}, shuffle: false, train: {{format: npy, columns: {{{files}}}}}}}
train:
  steps: {STEPS}
  batch: {BATCH}
  precision: {precision}
  optimizer: {{lr: {lr}, momentum: 0.9}}
  schedule: {{name: constant, warmup_steps: {WARMUP}}}
""")
    subprocess.run([weir, "train", spec, "--workers", "1", "--threads", "1", "--out", out], check=True, capture_output=True)
    with open(os.path.join(out, "metrics.jsonl")) as file:
        losses = [event["loss"] for event in map(json.loads, file) if event["event"] == "step"]
    return losses, read_tensors(os.path.join(out, "model.safetensors"))


def distances(got, exact, begin):
    """Of (losses, parameters) from those in float64."""
    losses = numpy.mean([abs(a - b) / abs(b) for a, b in zip(got[0], exact[0])])
    off = sum(((got[1][name] - value)**2).sum() for name, value in exact[1].items())
    come = sum(((begin[name] - value)**2).sum() for name, value in exact[1].items())
    return f"{losses:.1e} {(off / come)**0.5:.1e}"


def compare(weir, name):
    case = models.FULL[name]
    lr = case.lr / 5  # so that rounding alone makes no other trajectory
    torch.manual_seed(0)
    module = case.build().train()
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    columns = case.data(STEPS * BATCH)
    begin = {key: value.detach().double().numpy() for key, value in module.named_parameters()}
    data = list(columns.values())
    exact = torch_run(case, module, data, lr, torch.float64)
    found = {"PyTorch": distances(torch_run(case, module, data, lr, torch.float32), exact, begin)}
    with tempfile.TemporaryDirectory() as folder:
        for key, column in columns.items():
            numpy.save(os.path.join(folder, key), column)
        export.export(case, os.path.join(folder, "model.onnx"), "old", module=copy.deepcopy(module))
        for precision in PRECISIONS:
            found[precision] = distances(our_run(weir, folder, case, list(columns), precision, lr), exact, begin)
    print(f"{name:14}" + "".join(f"  {side} {value}" for side, value in found.items()), flush=True)


def main():
    print(f"{STEPS} steps of {BATCH} samples: distance of the loss, and of the parameters, from PyTorch in float64")
    for name in sys.argv[2:] or DEFAULT:
        compare(os.path.abspath(sys.argv[1]), name)


if __name__ == "__main__":
    main()
