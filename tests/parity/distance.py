#!/usr/bin/env python3
"""How far from float64 training is, ours beside PyTorch's own: models of models.py, 50 steps each, of PyTorch in float64,
in float32 and under autocast to bfloat16, and of Weir in fp32, fp32-fast and bf16, from the same weights on the same
samples, without dropout:

    python tests/parity/distance.py build/weir [MODEL...] [--full] [--draws 3] [--steps 50] [--tensors]

Three distances from PyTorch in float64, each relative: of the first step's gradient, of a step's loss (the mean over the
steps), and of the trained parameters, as a part of the way that they have come. One training says little, because an input
of a ReLU that is within a rounding of 0 moves all that follows: each number is the median over some draws of weights and
samples. Exits 1 if fp32 or bf16 is more than twice as far as PyTorch in the same type. --full: the models at their real
width, which takes longer. Needs tests/parity/requirements.txt."""
import argparse
import copy
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
from typing import NamedTuple

import numpy
import torch
import torch.nn.functional as F

import export
import models

torch.set_flush_denormal(True)  # as Weir computes
torch.set_num_threads(1)

BATCH, WARMUP = 16, 5
LR_OF_GRADIENT = 2.0**40  # so great that what one step makes of a weight is its gradient
TIMES_MAX = 2
THEIRS = {"PyTorch f32": False, "PyTorch bf16": True}  # side: whether under autocast
OURS = {"fp32": "PyTorch f32", "fp32-fast": "PyTorch f32", "bf16": "PyTorch bf16"}  # side: which it is beside
JUDGED = ("fp32", "bf16")  # fp32-fast rounds more, and says so; for small models it is fp32
NAMES = ("gradient", "loss", "parameters")
NEWER = ("folded",)  # models that PyTorch's older exporter cannot write
NEAREST = 1e-9  # nearer than this is the same
ROW = "{:19} {:13}" + " {:>10}" * 6


class Training(NamedTuple):
    gradient: dict  # of the first step, by parameter
    losses: list
    parameters: dict  # at the end


class Draw(NamedTuple):
    case: models.Case
    module: torch.nn.Module
    columns: dict  # of the samples
    lr: float
    steps: int


def draw(case, seed, steps):
    """Weights and samples; those of another seed are others."""
    torch.manual_seed(seed)
    module = case.build().train()
    for part in module.modules():
        if isinstance(getattr(part, "p", None), float):
            part.p = 0.0  # dropout
    columns = case.data((seed + 1) * steps * BATCH)
    columns = {name: column[seed * steps * BATCH:] for name, column in columns.items()}
    return Draw(case, module, columns, case.lr / 5, steps)  # less, so that rounding alone makes no other trajectory


def loss_of(case, output, labels):
    if output.dtype == torch.bfloat16:
        output = output.float()
    if case.loss == "mse":
        return F.mse_loss(output, labels)
    if case.loss == "bce_with_logits":
        return F.binary_cross_entropy_with_logits(output, labels)
    return F.cross_entropy(output.transpose(1, 2) if output.dim() == 3 else output, labels)


def numbers(tensors):
    return {name: value.detach().double().numpy().copy() for name, value in tensors}


def torch_run(drawn, dtype, is_autocast=False):
    module = copy.deepcopy(drawn.module).to(dtype)
    optimizer = torch.optim.SGD(module.parameters(), lr=drawn.lr, momentum=0.9)
    losses, gradient = [], None
    for step in range(drawn.steps):
        samples = [torch.tensor(column[step * BATCH:(step + 1) * BATCH]) for column in drawn.columns.values()]
        samples = [sample.to(dtype) if sample.is_floating_point() else sample for sample in samples]
        for group in optimizer.param_groups:
            group["lr"] = drawn.lr * min(1, (step + 1) / (WARMUP if drawn.steps > 1 else 1))
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            output = module(*samples[:-1])
        loss = loss_of(drawn.case, output, samples[-1])
        loss.backward()
        gradient = gradient or numbers((name, value.grad) for name, value in module.named_parameters())
        optimizer.step()
        losses.append(loss.item())
    return Training(gradient, losses, numbers(module.named_parameters()))


def read_tensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        body = file.read()
    return {name: numpy.frombuffer(body[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"]).astype("<f8")
            for name, entry in header.items() if name != "__metadata__" and entry["dtype"] == "F32"}


def our_steps(weir, folder, drawn, precision):
    """Losses, and the parameters at the end."""
    inputs = ", ".join(f"{name}: {name}" for name in list(drawn.columns)[:-1])
    files = ", ".join(f"{name}: {name}.npy" for name in drawn.columns)
    spec, out = os.path.join(folder, "spec.yaml"), os.path.join(folder, "out")
    with open(spec, "w") as file:
        file.write(f"""name: distance
model: {{onnx: model.onnx, loss: {drawn.case.loss}, inputs: {{{inputs}}}, frozen_rows: {json.dumps(drawn.case.frozen_rows)}}}
data: {{root: {folder}, shuffle: false, train: {{format: npy, columns: {{{files}}}}}}}
train:
  steps: {drawn.steps}
  batch: {BATCH}
  precision: {precision}
  optimizer: {{lr: {drawn.lr}, momentum: 0.9}}
  schedule: {{name: constant, warmup_steps: {WARMUP if drawn.steps > 1 else 0}}}
""")
    subprocess.run([weir, "train", spec, "--workers", "1", "--threads", "1", "--force", "--out", out], check=True,
                   stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "metrics.jsonl")) as file:
        losses = [event["loss"] for event in map(json.loads, file) if event["event"] == "step"]
    return losses, read_tensors(os.path.join(out, "model.safetensors"))


def our_run(weir, folder, drawn, precision):
    begin, once = numbers(drawn.module.named_parameters()), drawn._replace(steps=1, lr=LR_OF_GRADIENT)
    after = as_named(our_steps(weir, folder, once, precision)[1], drawn.module)
    losses, parameters = our_steps(weir, folder, drawn, precision)
    return Training({name: (begin[name] - value) / LR_OF_GRADIENT for name, value in after.items()}, losses,
                    as_named(parameters, drawn.module))


def as_named(tensors, module):
    """As PyTorch names them: of tied parameters, the exporter may take another name."""
    names = {}
    for name, value in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(value), []).append(name)
    return {same[0]: next(tensors[name] for name in same if name in tensors) for same in names.values()}


def norm(tensors):
    return sum((value**2).sum() for value in tensors) ** 0.5


def distances(got, exact, drawn):
    """In the order of NAMES."""
    begin = numbers(drawn.module.named_parameters())
    off = norm(got.gradient[name] - value for name, value in exact.gradient.items()) / norm(exact.gradient.values())
    losses = statistics.mean(abs(a - b) / abs(b) for a, b in zip(got.losses, exact.losses))
    parameters = (norm(got.parameters[name] - value for name, value in exact.parameters.items()) /
                  norm(begin[name] - value for name, value in exact.parameters.items()))
    return [max(NEAREST, value) for value in (off, losses, parameters)]


def print_tensors(found, exact):
    """Which operator rounds too much: the distance of the first gradient by parameter."""
    for name, value in exact.gradient.items():
        size = norm([value]) or 1
        print(f"  {name:40}" + "".join(f"  {side} {norm([got.gradient[name] - value]) / size:.1e}" for side, got in found.items()))


def run_sides(drawn, exporter, options):
    """The distances of each side."""
    exact = torch_run(drawn, torch.float64)
    found = {side: torch_run(drawn, torch.float32, is_autocast) for side, is_autocast in THEIRS.items()}
    with tempfile.TemporaryDirectory() as folder:
        for name, column in drawn.columns.items():
            numpy.save(os.path.join(folder, name), column)
        export.export(drawn.case, os.path.join(folder, "model.onnx"), exporter, module=copy.deepcopy(drawn.module))
        for precision in OURS if options.full else JUDGED:
            found[precision] = our_run(options.weir, folder, drawn, precision)
    if options.tensors:
        print_tensors(found, exact)
    return {side: distances(got, exact, drawn) for side, got in found.items()}


def middles(rows):
    """The median of each column."""
    return [statistics.median(column) for column in zip(*rows)]


def compare(case, name, options):
    """What of ours is too far. Prints a line for each side."""
    exporter = "new" if name in NEWER else "old"
    runs = [run_sides(draw(case, seed, options.steps), exporter, options) for seed in range(options.draws)]
    middle = {side: middles(run[side] for run in runs) for side in runs[0]}
    times = {side: middles([a / b for a, b in zip(run[side], run[beside])] for run in runs)
             for side, beside in OURS.items() if side in middle}
    for side, values in middle.items():
        print(ROW.format(name if side == next(iter(middle)) else "", side, *(f"{value:.1e}" for value in values),
                         *(f"{value:.2f}" for value in times.get(side, ())), *[""] * 3 * (side not in times)).rstrip(), flush=True)
    return [f"{name} in {side}: {what} {value:.2f} times PyTorch's" for side in JUDGED
            for what, value in zip(NAMES, times[side]) if value > TIMES_MAX]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", type=os.path.abspath, help="the program")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    parser.add_argument("--full", action="store_true", help="models at their real width; the default: small ones")
    parser.add_argument("--draws", type=int, default=3, help="of weights and samples")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--tensors", action="store_true", help="the first gradient's distance by parameter, too")
    options = parser.parse_args()
    known = models.FULL if options.full else {**models.SMALL, **models.WIDER}
    if unknown := set(options.models) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    print(f"{options.steps} steps of {BATCH} samples, {options.draws} draws: distance from PyTorch in float64, and how many times "
          "PyTorch's ours is")
    print(ROW.format("MODEL", "", *NAMES, *NAMES).upper(), flush=True)
    names = options.models or list(known)
    worse = [text for name in names for text in compare(known[name], name, options)]
    print("\n".join(worse) or f"{len(names)} models: fp32 and bf16 are each at most {TIMES_MAX} times as far as PyTorch's own")
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
