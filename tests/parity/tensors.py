#!/usr/bin/env python3
"""Makes tensors.json: what 20 steps make of tensors that lie across blocks or share one, where updates need whole
tensors or all of them, as PyTorch computes it in float64. tests/unit/server/parameters/parameters_tensors_test.c pushes
the same gradients to a parameter server. Needs tests/parity/requirements.txt; run as

    python tests/parity/tensors.py > tests/parity/tensors.json

The first tensor is larger than a block, the others share one. Weights and gradients are made up by formulas, rounded to
float32. Of each tensor some elements are kept, and the root of the mean of their squares."""
import json

import numpy
import torch

import optimizers

torch.set_flush_denormal(True)  # as Weir computes

STEPS = 20
SHAPES = [[300, 300], [300], [300], [300], [3, 300], [3]]
KEPT = 40  # elements of a tensor, at equal distances
CASES = [
    {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}, "clip_norm": 2.0},
    {"optimizer": {"name": "adam", "lr": 0.01, "weight_decay": 0.1}, "clip_norm": 0.5},
    {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}, "clip_value": 0.125},
    {"optimizer": {"name": "lamb", "lr": 0.02, "weight_decay": 0.1}},
    {"optimizer": {"name": "lamb", "lr": 0.02}, "clip_norm": 1.0},
    {"optimizer": {"name": "lars", "lr": 2.0, "weight_decay": 0.01, "trust_coefficient": 0.01}},
    {"optimizer": {"name": "adafactor", "lr": 0.05}},
    {"optimizer": {"name": "adafactor", "lr": 0.02, "beta2_decay": -0.5, "d": 1.5, "weight_decay": 0.1},
     "clip_norm": 1.0},
]


def first_weights(begin, shape):
    k = torch.arange(begin, begin + numpy.prod(shape), dtype=torch.int64)
    return ((k * 7919 % 1009 - 504).double() / 8072).float().double().reshape(shape)


def gradients(step, begin, shape):
    k = torch.arange(begin, begin + numpy.prod(shape), dtype=torch.int64)
    whole = (k * 6007 + step * 7877 + k // 300) % 2003 - 1001
    return whole.double().div(2003 * (1 + k % 5)).float().double().reshape(shape)


def train(case):
    options = dict(case["optimizer"])
    begins = [0]
    for shape in SHAPES:
        begins.append(begins[-1] + int(numpy.prod(shape)))
    params = [torch.nn.Parameter(first_weights(*at)) for at in zip(begins, SHAPES)]
    optimizer = optimizers.MAKERS[options.pop("name")](params, **options)
    for step in range(STEPS):
        for param, begin, shape in zip(params, begins, SHAPES):
            param.grad = gradients(step, begin, shape)
        if "clip_norm" in case:
            torch.nn.utils.clip_grad_norm_(params, case["clip_norm"])
        if "clip_value" in case:
            torch.nn.utils.clip_grad_value_(params, case["clip_value"])
        optimizer.step()
    return [{"begin": begin, "elems": param.numel(), "rms": float(f"{param.pow(2).mean().sqrt():.12g}"),
             "weights": [float(f"{w:.10g}") for w in
                         param.detach().flatten()[::max(1, param.numel() // KEPT)].tolist()]}
            for param, begin in zip(params, begins)]


def main():
    lines = ",\n".join("  " + json.dumps(dict(case, tensors=train(case))) for case in CASES)
    print(f'{{"torch": "{torch.__version__}", "cases": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
