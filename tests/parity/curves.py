#!/usr/bin/env python3
"""Makes curves.json: loss and learning rate per step of whole runs, each with another optimizer and schedule, of PyTorch
in float64. tests/integration/test_parity.py trains the same. Needs tests/parity/requirements.txt; run as

    python tests/parity/curves.py build/weir > tests/parity/curves.json

A new run is a line of CURVES: its keys are those of the spec's section `train`. What PyTorch makes of them is in
optimizers.py (MAKERS) and schedules.py (MAKERS)."""
import json
import sys

import torch

import golden
import optimizers
import schedules

MODEL = ["mlp", "--hidden", "32", "--seed", "13"]
STEPS, BATCH, MICROBATCHES = 50, 64, 4


def curve(optimizer, schedule=None, **train):
    return {"steps": STEPS, "batch": BATCH, "microbatches": MICROBATCHES, "optimizer": optimizer,
            "schedule": schedule or {"name": "constant"}, **train}


CURVES = {
    "sgd-one-cycle": curve({"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True}, {"name": "one_cycle"}),
    "adam-noam": curve({"name": "adam", "lr": 0.01, "weight_decay": 0.01}, {"name": "noam", "warmup_steps": 10}),
    "adamw-cosine": curve({"name": "adamw", "lr": 0.003, "weight_decay": 0.1},
                          {"name": "cosine", "warmup_steps": 10, "eta_min": 0.0001}),
    "amsgrad-multistep": curve({"name": "amsgrad", "lr": 0.003}, {"name": "multistep", "milestones": [20, 40]}),
    "nadam-linear": curve({"name": "nadam", "lr": 0.002}, {"name": "linear", "start_factor": 1, "end_factor": 0.1}),
    "radam-inverse-sqrt": curve({"name": "radam", "lr": 0.005, "betas": [0.9, 0.9]},
                                {"name": "inverse_sqrt", "warmup_steps": 5}),
    "adamax-polynomial": curve({"name": "adamax", "lr": 0.004}, {"name": "polynomial", "power": 2}),
    "adagrad-step": curve({"name": "adagrad", "lr": 0.02, "initial_accumulator_value": 0.01},
                          {"name": "step", "step_size": 20, "gamma": 0.5}),
    "adadelta": curve({"name": "adadelta", "lr": 1}),
    "rmsprop-exponential": curve({"name": "rmsprop", "lr": 0.001, "momentum": 0.5, "centered": True},
                                 {"name": "exponential", "gamma": 0.95, "warmup_steps": 5}),
    "lion-warm-restarts": curve({"name": "lion", "lr": 0.0003, "weight_decay": 0.1},
                                {"name": "cosine_warm_restarts", "T_0": 10, "T_mult": 2}),
}


def train(weir, case):
    options, schedule = dict(case["optimizer"]), case["schedule"]
    name, lr = options.pop("name"), options.pop("lr")
    network = golden.build_network(weir, {"model": MODEL})
    optimizer = optimizers.MAKERS[name](network.parameters(), lr=lr, **options)
    images, labels = golden.read_images(case)
    rates, losses = schedules.rates(schedule, lr, STEPS), []
    for step, rate in enumerate(rates):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = torch.nn.functional.cross_entropy(network(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"train": case, "losses": losses, "rates": rates}


def main():
    torch.set_num_threads(1)
    lines = ",\n".join(f'  "{name}": {json.dumps(train(sys.argv[1], case))}' for name, case in CURVES.items())
    print(f'{{"torch": "{torch.__version__}", "model": {json.dumps(MODEL)}, "cases": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    main()
