#!/usr/bin/env python3
"""Makes schedules.json: the learning rate of every schedule for 200 steps, bare and after a linear warm-up, by
torch.optim.lr_scheduler. tests/unit/schedule_test.c compares ours, and wants both for each row of schedule.def. Needs
tests/parity/requirements.txt; run as

    python tests/parity/schedules.py > tests/parity/schedules.json

A warm-up is PyTorch's SequentialLR of a LinearLR and the schedule, which then counts from 0; but step and multistep
count the steps of the run."""
import json
import warnings

import torch

STEPS, LR = 200, 0.4
SCHEDULES = torch.optim.lr_scheduler


def case(make, name, warmup_steps=0, **options):
    """make: (optimizer, steps after the warm-up, warm-up) -> PyTorch's scheduler."""
    return make, {"name": name, "warmup_steps": warmup_steps, **options}


def noam(d_model):
    return lambda o, steps, warmup: SCHEDULES.LambdaLR(
        o, lambda step: d_model**-0.5 * min((step + 1)**-0.5, (step + 1) * warmup**-1.5))


def restarts(**options):
    return lambda o, steps, warmup: SCHEDULES.CosineAnnealingWarmRestarts(o, **options)


def one_cycle(**options):
    return lambda o, steps, warmup: SCHEDULES.OneCycleLR(o, LR, total_steps=steps, cycle_momentum=False, **options)


def shifted(milestones, gamma):
    return lambda o, steps, warmup: SCHEDULES.MultiStepLR(o, [at - warmup for at in milestones], gamma)


def constant(o, steps, warmup):
    return SCHEDULES.ConstantLR(o, factor=1)


def inverse_sqrt(o, steps, warmup):
    return SCHEDULES.LambdaLR(o, lambda step: (max(warmup, 1) / (warmup + step + 1))**0.5)


CASES = [
    case(constant, "constant"),
    case(constant, "constant", 10),
    case(lambda o, s, w: SCHEDULES.StepLR(o, 30), "step", step_size=30),
    case(shifted(range(30, 200, 30), 0.5), "step", 10, step_size=30, gamma=0.5),
    case(lambda o, s, w: SCHEDULES.MultiStepLR(o, [50, 120, 121]), "multistep", milestones=[50, 120, 121]),
    case(shifted([50, 120, 121], 0.3), "multistep", 10, milestones=[50, 120, 121], gamma=0.3),
    case(lambda o, s, w: SCHEDULES.ExponentialLR(o, 0.98), "exponential", gamma=0.98),
    case(lambda o, s, w: SCHEDULES.ExponentialLR(o, 0.98), "exponential", 10, gamma=0.98),
    case(lambda o, s, w: SCHEDULES.LinearLR(o, total_iters=150), "linear", total_iters=150),
    case(lambda o, s, w: SCHEDULES.LinearLR(o, 1.0, 0.0, total_iters=s), "linear", start_factor=1, end_factor=0),
    case(lambda o, s, w: SCHEDULES.LinearLR(o, 1.0, 0.25, total_iters=100), "linear", 10, start_factor=1,
         end_factor=0.25, total_iters=100),
    case(lambda o, s, w: SCHEDULES.PolynomialLR(o, total_iters=s), "polynomial"),
    case(lambda o, s, w: SCHEDULES.PolynomialLR(o, total_iters=150, power=2.5), "polynomial", total_iters=150,
         power=2.5),
    case(lambda o, s, w: SCHEDULES.PolynomialLR(o, total_iters=s, power=0.5), "polynomial", 10, power=0.5),
    case(lambda o, s, w: SCHEDULES.CosineAnnealingLR(o, s), "cosine"),
    case(lambda o, s, w: SCHEDULES.CosineAnnealingLR(o, s, eta_min=0.05), "cosine", 10, eta_min=0.05),
    case(restarts(T_0=35), "cosine_warm_restarts", T_0=35),
    case(restarts(T_0=7, T_mult=2, eta_min=0.01), "cosine_warm_restarts", T_0=7, T_mult=2, eta_min=0.01),
    case(restarts(T_0=1, T_mult=3), "cosine_warm_restarts", T_0=1, T_mult=3),
    case(restarts(T_0=20, T_mult=2), "cosine_warm_restarts", 10, T_0=20, T_mult=2),
    case(one_cycle(), "one_cycle"),
    case(one_cycle(three_phase=True, pct_start=0.37), "one_cycle", three_phase=True, pct_start=0.37),
    case(one_cycle(anneal_strategy="linear", div_factor=4.0, final_div_factor=10.0), "one_cycle",
         anneal_strategy="linear", div_factor=4, final_div_factor=10),
    case(one_cycle(pct_start=0.0), "one_cycle", pct_start=0),
    case(one_cycle(pct_start=1.0), "one_cycle", pct_start=1),
    case(one_cycle(pct_start=0.25), "one_cycle", 10, pct_start=0.25),
    case(inverse_sqrt, "inverse_sqrt"),
    case(inverse_sqrt, "inverse_sqrt", 10),
    case(noam(1), "noam", 10),
    case(noam(512), "noam", 40, d_model=512),
]


def run(make, steps, warmup):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    schedule, rates = make(optimizer, steps, warmup), []
    while len(rates) < steps:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(rates) < steps:  # OneCycleLR ends there
            schedule.step()
    return rates


def sequence(make, warmup):
    """SequentialLR; OneCycleLR, which changes the optimizer's base rate, is run by itself after the warm-up."""
    def warm(optimizer):
        return SCHEDULES.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)

    probe = make(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR), STEPS - warmup, warmup)
    if isinstance(probe, SCHEDULES.OneCycleLR):
        return run(lambda o, s, w: warm(o), warmup, warmup) + run(make, STEPS - warmup, warmup)
    return run(lambda o, s, w: SCHEDULES.SequentialLR(o, [warm(o), make(o, STEPS - warmup, warmup)], [warmup]), STEPS,
               warmup)


def main():
    warnings.simplefilter("ignore")
    lines = []
    for make, options in CASES:
        warmup = options["warmup_steps"]
        rates = sequence(make, warmup) if warmup and options["name"] != "noam" else run(make, STEPS, warmup)
        lines.append("  " + json.dumps({"options": options, "rates": [float(f"{rate:.12g}") for rate in rates]}))
    print(f'{{"torch": "{torch.__version__}", "lr": {LR}, "cases": [\n' + ",\n".join(lines) + "\n]}")


if __name__ == "__main__":
    main()
