#!/usr/bin/env python3
"""Makes groups.json: weights of tensors in several parameter groups, and their exponential moving average, after each
of 20 steps, as PyTorch computes them in float64. tests/unit/common/optim/group_updates_test.c compares ours. Needs
tests/parity/requirements.txt; run as

    python tests/parity/groups.py > tests/parity/groups.json

Weights and gradients are optimizers.py's. `train` is what the spec says; a group that is frozen is left out of
PyTorch's."""
import fnmatch
import json

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from optimizers import MAKERS, STEPS, first_weight, gradient
from schedules import rates

torch.set_flush_denormal(True)  # as Weir computes

TENSORS = {"w1": 12, "b1": 4, "w2": 8, "b2": 2}
CASES = [
    {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "groups": [
        {"params": ["b1"], "weight_decay": 0.0, "momentum": 0.0, "lr": 0.02},
        {"params": ["w2", "b?"], "momentum": 0.5, "nesterov": True}]},
     "schedule": {"name": "cosine", "warmup_steps": 5}, "average": {"decay": 0.9}},
    {"optimizer": {"name": "sgd", "lr": 0.1, "groups": [
        {"params": ["b2"], "frozen": True}, {"params": ["*2"], "momentum": 0.9, "dampening": 0.5}]},
     "schedule": {"name": "constant"}, "average": {"decay": 0.3}},
    {"optimizer": {"name": "adamw", "lr": 0.05, "betas": [0.9, 0.99], "groups": [
        {"params": ["b*"], "weight_decay": 0.0, "betas": [0.7, 0.9]}, {"params": ["w2"], "lr": 0.002}]},
     "schedule": {"name": "step", "step_size": 6, "gamma": 0.5},
     "average": {"decay": 0.99, "every_steps": 3, "start_step": 9}},
]


class Tensors(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, elems in TENSORS.items():
            values = [first_weight(i) for i in range(elems)]
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(values, dtype=torch.float64)))


def make_groups(named, options):
    """PyTorch's parameter groups, of what is trained. Takes `groups` out of the options."""
    groups = [dict(group, params=[], patterns=group["params"]) for group in options.pop("groups", [])]
    rest = {"params": [], "patterns": ["*"]}
    for name, tensor in named.items():
        next(group for group in [*groups, rest]
             if any(fnmatch.fnmatchcase(name, pattern) for pattern in group["patterns"]))["params"].append(tensor)
    for group in [*groups, rest]:
        del group["patterns"]
    return [group for group in [*groups, rest] if not group.pop("frozen", False) and group["params"]]


def average_start(module, average):
    return AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(average["decay"]))


def average_step(averaged, module, version, average):
    """After the step that made this version."""
    if version % average.get("every_steps", 1) == 0:
        if version <= average.get("start_step", 0):
            averaged.n_averaged.fill_(0)  # the next update copies
        averaged.update_parameters(module)


def values(module):
    return {name: [float(f"{value:.10g}") for value in tensor.tolist()]
            for name, tensor in module.named_parameters()}


def train(case):
    tensors, options = Tensors(), dict(case["optimizer"])
    averaged = average_start(tensors, case["average"])
    maker, lr = MAKERS[options.pop("name")], options.pop("lr")
    optimizer = maker(make_groups(dict(tensors.named_parameters()), options), lr=lr, **options)
    scheduled = [rates(case["schedule"], group["lr"], STEPS) for group in optimizer.param_groups]
    weights, averages = [], []
    for step in range(STEPS):
        for group, own in zip(optimizer.param_groups, scheduled):
            group["lr"] = own[step]
        for name, elems in TENSORS.items():
            grad = [gradient(step, i) for i in range(elems)]
            getattr(tensors, name).grad = torch.tensor(grad, dtype=torch.float64)
        optimizer.step()
        average_step(averaged, tensors, step + 1, case["average"])
        weights.append(values(tensors))
        averages.append(values(averaged.module))
    return {"train": case, "weights": weights, "averages": averages}


def main():
    lines = ",\n".join("  " + json.dumps(train(case)) for case in CASES)
    print(f'{{"torch": "{torch.__version__}", "cases": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
