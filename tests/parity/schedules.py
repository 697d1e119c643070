#!/usr/bin/env python3
"""Makes schedules.json: the learning rate of every schedule for 200 steps, bare and after a linear warm-up, by
torch.optim.lr_scheduler. tests/unit/common/optim/schedule_test.c compares ours, and wants both for each row of schedule.def.
Needs tests/parity/requirements.txt; run as

    python tests/parity/schedules.py > tests/parity/schedules.json

A warm-up is PyTorch's SequentialLR of a LinearLR and the schedule, which then counts from 0; but step and multistep
count the steps of the run."""
import json
import warnings

import torch

torch.set_flush_denormal(True)  # as Weir computes

STEPS, LR = 200, 0.4
SCHEDULES = torch.optim.lr_scheduler


def case(name, warmup_steps=0, **options):
    return {"name": name, "warmup_steps": warmup_steps, **options}


CASES = [
    case("constant"),
    case("constant", 10),
    case("step", step_size=30),
    case("step", 10, step_size=30, gamma=0.5),
    case("multistep", milestones=[50, 120, 121]),
    case("multistep", 10, milestones=[50, 120, 121], gamma=0.3),
    case("exponential", gamma=0.98),
    case("exponential", 10, gamma=0.98),
    case("linear", total_iters=150),
    case("linear", start_factor=1, end_factor=0),
    case("linear", 10, start_factor=1, end_factor=0.25, total_iters=100),
    case("polynomial"),
    case("polynomial", total_iters=150, power=2.5),
    case("polynomial", 10, power=0.5),
    case("cosine"),
    case("cosine", 10, eta_min=0.05),
    case("cosine_warm_restarts", T_0=35),
    case("cosine_warm_restarts", T_0=7, T_mult=2, eta_min=0.01),
    case("cosine_warm_restarts", T_0=1, T_mult=3),
    case("cosine_warm_restarts", 10, T_0=20, T_mult=2),
    case("one_cycle"),
    case("one_cycle", three_phase=True, pct_start=0.37),
    case("one_cycle", anneal_strategy="linear", div_factor=4, final_div_factor=10),
    case("one_cycle", pct_start=0.0),
    case("one_cycle", pct_start=1.0),
    case("one_cycle", 10, pct_start=0.25),
    case("inverse_sqrt"),
    case("inverse_sqrt", 10),
    case("noam", 10),
    case("noam", 40, d_model=512),
]


def step(o, steps, warmup, step_size, gamma=0.1):
    if warmup == 0:
        return SCHEDULES.StepLR(o, step_size, gamma)
    return SCHEDULES.MultiStepLR(o, [at - warmup for at in range(step_size, steps + warmup, step_size)], gamma)


def multistep(o, steps, warmup, milestones, gamma=0.1):
    return SCHEDULES.MultiStepLR(o, [at - warmup for at in milestones], gamma)


def linear(o, steps, warmup, total_iters=None, **options):
    return SCHEDULES.LinearLR(o, total_iters=total_iters or steps, **options)


def polynomial(o, steps, warmup, total_iters=None, power=1.0):
    return SCHEDULES.PolynomialLR(o, total_iters or steps, power)


def one_cycle(o, steps, warmup, cycle_momentum=False, **options):
    lr = o.param_groups[0]["lr"]
    return SCHEDULES.OneCycleLR(o, lr, total_steps=steps, cycle_momentum=cycle_momentum, **options)


def inverse_sqrt(o, steps, warmup):
    return SCHEDULES.LambdaLR(o, lambda at: (max(warmup, 1) / (warmup + at + 1))**0.5)


def noam(o, steps, warmup, d_model=1):
    return SCHEDULES.LambdaLR(o, lambda at: d_model**-0.5 * min((at + 1)**-0.5, (at + 1) * warmup**-1.5))


# (optimizer, steps after the warm-up, warm-up, options) -> PyTorch's scheduler.
MAKERS = {
    "constant": lambda o, steps, warmup: SCHEDULES.ConstantLR(o, factor=1), "step": step, "multistep": multistep,
    "exponential": lambda o, steps, warmup, gamma: SCHEDULES.ExponentialLR(o, gamma), "linear": linear,
    "polynomial": polynomial,
    "cosine": lambda o, steps, warmup, **options: SCHEDULES.CosineAnnealingLR(o, steps, **options),
    "cosine_warm_restarts": lambda o, steps, warmup, **options: SCHEDULES.CosineAnnealingWarmRestarts(o, **options),
    "one_cycle": one_cycle, "inverse_sqrt": inverse_sqrt, "noam": noam,
}


def run(make, lr, steps, key="lr"):
    """make: optimizer -> scheduler. What it makes of the optimizer's key."""
    optimizer, found = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr, momentum=0.5), []
    schedule = make(optimizer)
    while len(found) < steps:
        found.append(optimizer.param_groups[0][key])
        optimizer.step()
        if len(found) < steps:  # OneCycleLR ends there
            schedule.step()
    return found


def rates(options, lr, steps):
    """Of each step, by PyTorch. options: train.schedule."""
    options = dict(options)
    name, warmup = options.pop("name"), options.pop("warmup_steps", 0)

    def make(optimizer):
        return MAKERS[name](optimizer, steps - warmup, warmup, **options)

    def warm(optimizer):
        return SCHEDULES.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)

    if name == "noam" or warmup == 0:
        return run(lambda o: MAKERS[name](o, steps, warmup, **options), lr, steps)
    if name == "one_cycle":  # it changes the optimizer's base rate, and so the warm-up's
        return run(warm, lr, warmup) + run(make, lr, steps - warmup)
    return run(lambda o: SCHEDULES.SequentialLR(o, [warm(o), make(o)], [warmup]), lr, steps)


def momenta(options, steps):
    """Of each step, by PyTorch; None where the schedule leaves the momentum alone. options: train.schedule."""
    options = dict(options)
    name, warmup = options.pop("name"), options.pop("warmup_steps", 0)
    if not options.get("cycle_momentum"):
        return [None] * steps
    cycle = run(lambda o: MAKERS[name](o, steps - warmup, warmup, **options), LR, steps - warmup, "momentum")
    return cycle[:1] * warmup + cycle


def set_momentum(group, momentum):
    """Of one of the optimizer's groups, as OneCycleLR does."""
    if momentum is not None:
        group.update({"betas": (momentum, *group["betas"][1:])} if "betas" in group else {"momentum": momentum})


def main():
    lines = []
    for options in CASES:
        found = [float(f"{rate:.12g}") for rate in rates(options, LR, STEPS)]
        lines.append("  " + json.dumps({"options": options, "rates": found}))
    print(f'{{"torch": "{torch.__version__}", "lr": {LR}, "cases": [\n' + ",\n".join(lines) + "\n]}")


warnings.simplefilter("ignore")  # SequentialLR steps its schedulers by number
if __name__ == "__main__":
    main()
