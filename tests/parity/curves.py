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


def local(replicas, inner_steps, optimizer, *schedule, outer=None, inner_state="reset", **train):
    """Of mode local; the last steps are fewer than the others where 50 is no multiple of inner_steps."""
    options = {"replicas": replicas, "inner_steps": inner_steps, **({"outer": outer} if outer else {}),
               **({"inner_state": inner_state} if inner_state != "reset" else {})}
    return curve(optimizer, *schedule, mode="local", local=options, **train)


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
    "local-sgd": local(2, 8, {"name": "sgd", "lr": 0.1, "momentum": 0.9}, {"name": "cosine", "warmup_steps": 5}),
    "local-adamw": local(4, 5, {"name": "adamw", "lr": 0.003, "weight_decay": 0.1}, clip_norm=0.5,
                         outer={"lr": 0.5, "momentum": 0.8, "nesterov": False}),
    "local-kept": local(4, 8, {"name": "adagrad", "lr": 0.02, "initial_accumulator_value": 0.01}, inner_state="kept"),
    "local-adam-kept": local(2, 6, {"name": "adam", "lr": 0.003}, {"name": "cosine", "warmup_steps": 5}, inner_state="kept"),
    "local-alone": local(1, 7, {"name": "sgd", "lr": 0.1, "groups": [{"params": ["head.*"], "lr": 0.02}]}),
    "sgd-ssp-1": curve({"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}, mode="ssp", staleness=1),
    "sgd-ssp-4": curve({"name": "sgd", "lr": 0.05}, {"name": "cosine", "warmup_steps": 5}, mode="ssp", staleness=4,
                       clip_norm=0.5, average={"decay": 0.9}),
    "adamw-ssp-2": curve({"name": "adamw", "lr": 0.001, "weight_decay": 0.1}, mode="ssp", staleness=2),
}


def clip(network, case):
    if "clip_value" in case:
        torch.nn.utils.clip_grad_value_(network.parameters(), case["clip_value"])
    if "clip_norm" in case:
        torch.nn.utils.clip_grad_norm_(network.parameters(), case["clip_norm"])


class Delayed:
    """Gradients that are taken at the weights of so many steps before, and applied to those of now."""

    def __init__(self, network, staleness):
        self.parameters, self.staleness, self.versions = list(network.parameters()), staleness, []

    @torch.no_grad()
    def set(self, version):
        for parameter, values in zip(self.parameters, version):
            parameter.copy_(values)

    def backward(self, loss_of):
        self.versions = [*self.versions, [parameter.detach().clone() for parameter in self.parameters]][-self.staleness - 1:]
        self.set(self.versions[0])  # of the first steps that is version 0
        loss = loss_of()
        loss.backward()
        self.set(self.versions[-1])
        return loss


def make_optimizer(network, case):
    options = dict(case["optimizer"])
    name, lr = options.pop("name"), options.pop("lr")
    return optimizers.MAKERS[name](groups.make_groups(network.named, options), lr=lr, **options)


def set_step(optimizer, case, bases, step):
    """Bases: the groups' learning rates, of which the schedule makes those of the step."""
    momenta = schedules.momenta(case["schedule"], STEPS)
    for group, base in zip(optimizer.param_groups, bases):
        group["lr"] = schedules.rates(case["schedule"], base, STEPS)[step]
        schedules.set_momentum(group, momenta[step])


def take_step(network, optimizer, case, images, labels, delayed=None):
    optimizer.zero_grad()
    loss = (delayed or Delayed(network, 0)).backward(lambda: torch.nn.functional.cross_entropy(network(images), labels))
    clip(network, case)
    optimizer.step()
    return loss.item()


def train(weir, case):
    network = golden.build_network(weir, {"model": MODEL})
    images, labels = golden.read_images(case)
    averaged = groups.average_start(network, case.get("average", {"decay": 0}))
    losses = train_locally(network, case, images, labels) if "local" in case else []
    optimizer = make_optimizer(network, case)
    bases = [group["lr"] for group in optimizer.param_groups]
    delayed = Delayed(network, case.get("staleness", 0))
    for step in range(len(losses), STEPS):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        set_step(optimizer, case, bases, step)
        losses.append(take_step(network, optimizer, case, images[batch], labels[batch], delayed))
        groups.average_step(averaged, network, step + 1, case.get("average", {}))
    average = {AVERAGED: averaged.module.named[AVERAGED].tolist()} if "average" in case else {}
    rates = schedules.rates(case["schedule"], case["optimizer"]["lr"], STEPS)
    return {"train": case, "losses": losses, "rates": rates, "average": average}


def train_replica(network, case, batches, first, kept):
    """From the network's weights, with an optimizer of its own. batches: of each step from `first` on. kept: what it begins
    with, by parameter, if not anew. Returns the losses and what it keeps."""
    optimizer = make_optimizer(network, case)
    bases = [group["lr"] for group in optimizer.param_groups]
    losses = []
    for parameter, values in (kept or {}).items():
        optimizer.state[parameter] = {name: value.clone() for name, value in values.items()}
    for i, batch in enumerate(batches):
        set_step(optimizer, case, bases, first + i)
        losses.append(take_step(network, optimizer, case, *batch))
    return losses, optimizer.state


def mean_of(states):
    return {parameter: {name: sum(state[parameter][name] for state in states) / len(states) for name in values}
            for parameter, values in states[0].items()}


def train_locally(network, case, images, labels):
    """DiLoCo (Douillard et al., 2023), algorithm 1: what the replicas move by on average, turned round, is a gradient of
    the outer optimizer. Where inner_state is kept, replicas begin with the mean of what their optimizers kept."""
    local, share = case["local"], BATCH // case["local"]["replicas"]
    outer = torch.optim.SGD(network.parameters(), **local.get("outer", {"lr": 0.7, "momentum": 0.9, "nesterov": True}))
    losses, kept = [], None
    for first in range(0, STEPS, local["inner_steps"]):
        steps = range(first, min(first + local["inner_steps"], STEPS))
        start = [weight.detach().clone() for weight in network.parameters()]
        moved, seen, states = [torch.zeros_like(weight) for weight in start], [], []
        for replica in range(local["replicas"]):
            places = [slice(step * BATCH + replica * share, step * BATCH + (replica + 1) * share) for step in steps]
            of_replica, state = train_replica(network, case, [(images[place], labels[place]) for place in places], first, kept)
            seen.append(of_replica)
            states.append(state)
            for total, weight, begin in zip(moved, network.parameters(), start):
                total += (begin - weight.detach()) / local["replicas"]
                weight.data.copy_(begin)
        for weight, total in zip(network.parameters(), moved):
            weight.grad = total
        outer.step()
        kept = mean_of(states) if local.get("inner_state") == "kept" else None
        losses += [sum(of_step) / len(of_step) for of_step in zip(*seen)]
    return losses


def main():
    torch.set_num_threads(1)
    lines = ",\n".join(f'  "{name}": {json.dumps(train(sys.argv[1], case))}' for name, case in CURVES.items())
    print(f'{{"torch": "{torch.__version__}", "model": {json.dumps(MODEL)}, "cases": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    main()
