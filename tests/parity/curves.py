#!/usr/bin/env python3
"""Makes curves.json: loss and learning rate per step of whole runs, each with another optimizer and schedule, of
PyTorch in float64. tests/integration/test_parity.py trains the same. Needs tests/parity/requirements.txt; run as

    python tests/parity/curves.py build/weir > tests/parity/curves.json

A new run is a line of CURVES: its keys are those of the spec's section `train`. What PyTorch makes of them is in
optimizers.py (MAKERS) and schedules.py (MAKERS)."""
import json
import sys

import torch

import golden
import groups
import optimizers
import schedules

torch.set_flush_denormal(True)  # as Weir computes

MODEL = ["mlp", "--hidden", "32", "--seed", "13"]
STEPS, BATCH, MICROBATCHES = 50, 64, 4
AVERAGED = "head.weight"  # whose average is kept, of runs with one


def curve(optimizer, schedule=None, **train):
    return {"steps": STEPS, "batch": BATCH, "microbatches": MICROBATCHES, "optimizer": optimizer,
            "schedule": schedule or {"name": "constant"}, **train}


CURVES = {
    "sgd-one-cycle": curve({"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True}, {"name": "one_cycle"}),
    "adam-one-cycle": curve({"name": "adam", "lr": 0.005},
                            {"name": "one_cycle", "cycle_momentum": True, "warmup_steps": 5}),
    "sgd-clip-norm": curve({"name": "sgd", "lr": 0.2, "momentum": 0.9}, clip_norm=0.5),
    "adam-clip-value": curve({"name": "adam", "lr": 0.003}, clip_value=0.001),
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
    "sgd-groups": curve({"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "groups": [
        {"params": ["head.*"], "lr": 0.2, "momentum": 0.5}, {"params": ["*.bias"], "frozen": True}]},
                        {"name": "cosine", "warmup_steps": 10}, average={"decay": 0.9}),
    "adamw-groups": curve({"name": "adamw", "lr": 0.001, "weight_decay": 0.1, "groups": [
        {"params": ["*.bias"], "weight_decay": 0.0, "betas": [0.8, 0.9]}, {"params": ["head.*"], "lr": 0.01}]},
                          {"name": "step", "step_size": 20, "gamma": 0.5},
                          average={"decay": 0.95, "every_steps": 4, "start_step": 20}),
    "lion-warm-restarts": curve({"name": "lion", "lr": 0.0003, "weight_decay": 0.1},
                                {"name": "cosine_warm_restarts", "T_0": 10, "T_mult": 2}),
    "lamb-cosine": curve({"name": "lamb", "lr": 0.02, "weight_decay": 0.01}, {"name": "cosine", "warmup_steps": 5}),
    "lars-polynomial": curve({"name": "lars", "lr": 2, "weight_decay": 0.001, "trust_coefficient": 0.02},
                             {"name": "polynomial", "power": 2, "warmup_steps": 10}),
    "adafactor": curve({"name": "adafactor", "lr": 0.03}),
}


def clip(network, case):
    if "clip_value" in case:
        torch.nn.utils.clip_grad_value_(network.parameters(), case["clip_value"])
    if "clip_norm" in case:
        torch.nn.utils.clip_grad_norm_(network.parameters(), case["clip_norm"])


def train(weir, case):
    options, schedule = dict(case["optimizer"]), case["schedule"]
    name, lr = options.pop("name"), options.pop("lr")
    network = golden.build_network(weir, {"model": MODEL})
    optimizer = optimizers.MAKERS[name](groups.make_groups(network.named, options), lr=lr, **options)
    averaged = groups.average_start(network, case.get("average", {"decay": 0}))
    images, labels = golden.read_images(case)
    rates, losses = [schedules.rates(schedule, group["lr"], STEPS) for group in optimizer.param_groups], []
    momenta = schedules.momenta(schedule, STEPS)
    for step in range(STEPS):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        for group, own in zip(optimizer.param_groups, rates):
            group["lr"] = own[step]
            schedules.set_momentum(group, momenta[step])
        loss = torch.nn.functional.cross_entropy(network(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        clip(network, case)
        optimizer.step()
        losses.append(loss.item())
        groups.average_step(averaged, network, step + 1, case.get("average", {}))
    average = {AVERAGED: averaged.module.named[AVERAGED].tolist()} if "average" in case else {}
    return {"train": case, "losses": losses, "rates": schedules.rates(schedule, lr, STEPS), "average": average}


def main():
    torch.set_num_threads(1)
    lines = ",\n".join(f'  "{name}": {json.dumps(train(sys.argv[1], case))}' for name, case in CURVES.items())
    print(f'{{"torch": "{torch.__version__}", "model": {json.dumps(MODEL)}, "cases": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    main()
