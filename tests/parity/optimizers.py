#!/usr/bin/env python3
"""Makes optimizers.json: the weights of every optimizer with several sets of options after each of 20 steps, as PyTorch
computes them in float64. tests/unit/common/optim/optimizer_test.c compares ours, and wants a case for each row of
optimizer.def. Needs tests/parity/requirements.txt; run as

    python tests/parity/optimizers.py > tests/parity/optimizers.json

Weights and gradients are made up by formulas whose values are exact in float32, so that both see the same numbers.
`options` are those of train.optimizer, `schedule` of train.schedule."""
import json

import torch

import schedules

torch.set_flush_denormal(True)  # as Weir computes

ELEMS, STEPS = 16, 20
OPTIM = torch.optim


class Lion(OPTIM.Optimizer):
    """Chen et al. (2023), algorithm 2; PyTorch has none."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                c = beta1 * m + (1 - beta1) * p.grad
                p -= group["lr"] * (c.sign() + group["weight_decay"] * p)
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


class Lamb(OPTIM.Optimizer):
    """You et al. (2020), algorithm 2; PyTorch has none."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, bias_correction=True):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "bias_correction": bias_correction})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                t = state["t"] = state.get("t", 0) + 1
                m, v = (state.setdefault(key, torch.zeros_like(p)) for key in "mv")
                m.copy_(beta1 * m + (1 - beta1) * p.grad)
                v.copy_(beta2 * v + (1 - beta2) * p.grad ** 2)
                lack1, lack2 = (1 - beta1 ** t, 1 - beta2 ** t) if group["bias_correction"] else (1, 1)
                r = m / lack1 / ((v / lack2).sqrt() + group["eps"]) + group["weight_decay"] * p
                ratio = p.norm() / r.norm() if p.norm() > 0 and r.norm() > 0 else 1
                p -= group["lr"] * ratio * r


class Lars(OPTIM.Optimizer):
    """You et al. (2017), algorithm 1; PyTorch has none."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001, eps=1e-8):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay,
                                  "trust_coefficient": trust_coefficient, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                weights, grads, decay, local = p.norm(), p.grad.norm(), group["weight_decay"], 1
                if weights > 0 and grads > 0:
                    local = group["trust_coefficient"] * weights / (grads + decay * weights + group["eps"])
                v = self.state[p].setdefault("v", torch.zeros_like(p))
                v.copy_(group["momentum"] * v + group["lr"] * local * (p.grad + decay * p))
                p -= v


def adafactor(params, eps=2.0 ** -23, eps2=1e-3, **options):
    """PyTorch's default of eps is that of the weights' type, and ours are float32."""
    return OPTIM.Adafactor(params, eps=(eps, eps2), **options)


def amsgrad(params, **options):
    return OPTIM.Adam(params, amsgrad=True, **options)


MAKERS = {"sgd": OPTIM.SGD, "adam": OPTIM.Adam, "adamw": OPTIM.AdamW, "amsgrad": amsgrad, "nadam": OPTIM.NAdam,
          "radam": OPTIM.RAdam, "adamax": OPTIM.Adamax, "adagrad": OPTIM.Adagrad, "adadelta": OPTIM.Adadelta,
          "rmsprop": OPTIM.RMSprop, "lion": Lion, "lamb": Lamb, "lars": Lars,
          "adafactor": adafactor}


def case(name, lr, schedule=None, **options):
    return {"options": {"name": name, "lr": lr, **options}, "schedule": schedule or {"name": "constant"}}


CASES = [
    case("sgd", 0.1),
    case("sgd", 0.1, weight_decay=0.01),
    case("sgd", 0.1, momentum=0.9),
    case("sgd", 0.1, momentum=0.9, dampening=0.5, weight_decay=0.01),
    case("sgd", 0.1, momentum=0.9, nesterov=True, weight_decay=0.0005),
    case("sgd", 0.1, momentum=0.9, schedule={"name": "step", "step_size": 6, "gamma": 0.5}),
    case("sgd", 0.1, momentum=0.9, nesterov=True, schedule={"name": "one_cycle", "cycle_momentum": True}),
    case("adam", 0.05),
    case("adam", 0.05, betas=[0.8, 0.95], eps=0.001, weight_decay=0.1),
    case("adam", 0.05, amsgrad=True, betas=[0.9, 0.7]),
    case("adam", 0.05, weight_decay=0.1, decoupled_weight_decay=True, amsgrad=True),
    case("adam", 0.05, betas=[0.0, 0.0]),
    case("adam", 0.05, schedule={"name": "one_cycle", "cycle_momentum": True, "three_phase": True, "base_momentum": 0.6,
                                 "anneal_strategy": "linear", "warmup_steps": 3}),
    case("adamw", 0.05),
    case("adamw", 0.05, weight_decay=0.2, betas=[0.7, 0.9], amsgrad=True),
    case("adamw", 0.05, schedule={"name": "cosine", "warmup_steps": 5}),
    case("amsgrad", 0.05, betas=[0.9, 0.7]),
    case("amsgrad", 0.05, weight_decay=0.1, eps=0.01),
    case("amsgrad", 0.05, weight_decay=0.1, decoupled_weight_decay=True),
    case("nadam", 0.05),
    case("nadam", 0.05, momentum_decay=0.5, weight_decay=0.1, betas=[0.95, 0.9]),
    case("nadam", 0.05, momentum_decay=0.0, weight_decay=0.1, decoupled_weight_decay=True),
    case("radam", 0.05),
    case("radam", 0.05, betas=[0.8, 0.9], eps=0.001, weight_decay=0.1),
    case("radam", 0.05, betas=[0.9, 0.5]),
    case("radam", 0.05, weight_decay=0.1, decoupled_weight_decay=True, betas=[0.9, 0.99]),
    case("adamax", 0.05),
    case("adamax", 0.05, betas=[0.5, 0.8], eps=0.01, weight_decay=0.1),
    case("adagrad", 0.1),
    case("adagrad", 0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, eps=0.001),
    case("adadelta", 1.0),
    case("adadelta", 0.5, rho=0.8, eps=0.01, weight_decay=0.1),
    case("rmsprop", 0.02),
    case("rmsprop", 0.02, alpha=0.8, eps=0.01, weight_decay=0.1),
    case("rmsprop", 0.02, momentum=0.9),
    case("rmsprop", 0.02, centered=True),
    case("rmsprop", 0.02, centered=True, momentum=0.5, weight_decay=0.1, alpha=0.9),
    case("lion", 0.05),
    case("lion", 0.05, betas=[0.7, 0.9], weight_decay=0.1),
    case("lamb", 0.02),
    case("lamb", 0.02, betas=[0.8, 0.95], eps=0.001, weight_decay=0.1),
    case("lamb", 0.02, bias_correction=False, schedule={"name": "cosine", "warmup_steps": 5}),
    case("lars", 1.0, trust_coefficient=0.02),
    case("lars", 2.0, momentum=0.5, weight_decay=0.1, eps=0.1),
    case("adafactor", 0.05),
    case("adafactor", 0.05, beta2_decay=-0.5, eps=0.01, eps2=0.1, d=2.0, weight_decay=0.1),
]


def first_weight(i):
    return (-1) ** i * (0.5 + (i * 7 % 16) / 8)


def gradient(step, i):
    """From -1 to 1, at least 1/64 from 0, of several orders of magnitude."""
    return ((i * 29 + step * 53 + 7) % 64 - 31.5) / 32 * 2.0 ** -(i % 6)


def train(entry):
    options = dict(entry["options"])
    maker, lr = MAKERS[options.pop("name")], options.pop("lr")
    weights = torch.nn.Parameter(torch.tensor([first_weight(i) for i in range(ELEMS)], dtype=torch.float64))
    optimizer = maker([weights], lr=lr, **options)
    history, momenta = [], schedules.momenta(entry["schedule"], STEPS)
    for step, rate in enumerate(schedules.rates(entry["schedule"], lr, STEPS)):
        optimizer.param_groups[0]["lr"] = rate
        schedules.set_momentum(optimizer.param_groups[0], momenta[step])
        weights.grad = torch.tensor([gradient(step, i) for i in range(ELEMS)], dtype=torch.float64)
        optimizer.step()
        history.append([float(f"{weight:.10g}") for weight in weights.tolist()])
    return dict(entry, weights=history)


def main():
    lines = ",\n".join("  " + json.dumps(train(entry)) for entry in CASES)
    print(f'{{"torch": "{torch.__version__}", "cases": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
