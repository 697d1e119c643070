#!/usr/bin/env python3
"""A gRPC client that means harm to sweeps: extreme, mutated and random messages at the methods that know them.

usage: hostile_sweeps.py HOST:PORT SEED COUNT SWEEP MODEL.onnx

SWEEP is a live sweep, MODEL the file that is sent with new ones. Every call must end in a status of its own, and every
refusal in one line; what is extreme in one key must be refused by the name of that key. Prints the statuses by method as
JSON. Needs grpcio and grpcio-reflection."""
import collections
import json
import math
import sys

import grpc
from hostile_client import Attacker, call, message_class, services

METHODS = ("Submit", "ListSweeps", "GetSweep", "ExtendSweep", "StopSweep", "DeleteSweep")
U32, U64 = 2**32 - 1, 2**64 - 1
# Texts of a message that is wrong in one key, and the key as the refusal names it.
EXTREMES = [
    ({"concurrency": 10**9}, "concurrency"), ({"concurrency": 0}, "concurrency"), ({"repeats": U32}, "repeats"),
    ({"repeats": 0}, "repeats"), ({"repeats": 100, "concurrency": 256}, "repeats"), ({"name": "../../x"}, "name"),
    ({"name": "a" * 31}, "name"), ({"name": "%s%n"}, "name"), ({"name": "\n\x1b[2J"}, "name"), ({"name": ""}, "name"),
    ({"order": "\u202e"}, "order"), ({"budget": {"trials": U32}}, "budget.trials"), ({"budget": {"trials": 0}}, "budget.trials"),
    ({"budget": {"steps": 10**18}}, "budget.steps"), ({"budget": {"seconds": math.nan}}, "budget.seconds"),
    ({"budget": {"seconds": -math.inf}}, "budget.seconds"), ({"schedule": {"rungs": [1, U64]}}, "schedule.rungs"),
    ({"schedule": {"rungs": [1, U64], "unit": "samples"}}, "schedule.rungs"),
    ({"schedule": {"rungs": [1, 2**62]}, "budget": {"steps": U64}, "repeats": 100}, "schedule.rungs"),
    ({"schedule": {"rungs": [0]}}, "schedule.rungs"), ({"schedule": {"rungs": [2, 1]}}, "schedule.rungs"),
    ({"schedule": {"rungs": list(range(1, 100000))}}, "schedule.rungs"), ({"schedule": {"interval": U64}}, "schedule.interval"),
    ({"schedule": {"interval": 0}}, "schedule.interval"), ({"schedule": {"eta": U32}}, "schedule.eta"),
    ({"schedule": {"name": "pbt", "interval": 1, "quantile": math.nan}}, "schedule.quantile"),
    ({"schedule": {"name": "pbt", "interval": 1, "perturb": [math.inf]}}, "schedule.perturb"),
    ({"schedule": {"name": "x" * 5000}}, "schedule.name"), ({"schedule": {"unit": "\0"}}, "schedule.unit"),
    ({"search": {"name": "tpe", "n_ei_candidates": U32}}, "search.n_ei_candidates"),
    ({"search": {"name": "tpe", "gamma": math.nan}}, "search.gamma"),
    ({"search": {"name": "tpe", "prior_weight": 1e308}}, "search.prior_weight"),
    ({"search": {"name": "bohb", "num_samples": U32}}, "search.num_samples"),
    ({"search": {"name": "cmaes", "popsize": U32}}, "search.popsize"), ({"search": {"name": "\0"}}, "search.name"),
    ({"search": {"name": "gp", "n_startup_trials": U32}}, "search.n_startup_trials"),
    ({"objective": {"metric": "x" * 5000}}, "objective.metric"), ({"objective": {"goal": "%n" * 500}}, "objective.goal"),
    ({"objectives": [{"metric": f"m{i}"} for i in range(1000)]}, "objective"),
    ({"constraint": {"metric": "loss", "max": math.nan}}, "constraint"), ({"constraint": {"metric": "loss"}}, "constraint"),
    ({"from": ["x" * 10000]}, "from"), ({"from": [str(i) for i in range(10000)]}, "from"), ({"from": [""]}, "from"),
    ({"points": [{}] * 2000}, "points"), ({"points": [{"values": [{"path": "x", "value": "\0"}]}]}, "points"),
    ({"points": [{"values": [{"path": "train.optimizer.lr", "value": "nan"}]}]}, "points"), ({"space": []}, "space"),
    ({"space": [{"path": f"a{i}", "uniform": [0, 1]} for i in range(65)]}, "space"),
    ({"space": [{"path": "x" * 5000, "uniform": [0, 1]}]}, "space"), ({"space": [{"uniform": [0, 1]}]}, "space"),
    ({"space": [{"path": "train.optimizer.lr"}]}, "space.train.optimizer.lr"),
    ({"space": [{"path": "train.batch", "choice": [str(i) for i in range(20000)]}]}, "space.train.batch"),
    ({"space": [{"path": "train.batch", "choice": ["\x1b"]}]}, "space.train.batch"),
    ({"space": [{"path": "train.batch", "choice": ["9" * 4000]}]}, "space.train.batch"),
    *(({"space": [{"path": "train.optimizer.lr", **bounds}]}, "space.train.optimizer.lr") for bounds in (
        {"uniform": [math.nan, 1]}, {"uniform": [-1e308, 1e308]}, {"uniform": [1, 1]}, {"uniform": [0.0] * 100000},
        {"log": [0, 1]}, {"log": [1e-320, 1]}, {"uniform": [0, 1], "step": 1e-300}, {"uniform": [0, 1], "step": math.nan},
        {"uniform": [0, 1], "step": 1e-10}, {"uniform": [0, 1], "when": [{"path": "x", "value": "y"}] * 100000})),
]
BUDGETS = [{}, {"trials": U32}, {"trials": 0}, {"steps": U64}, {"seconds": math.nan}, {"seconds": math.inf}, {"seconds": -1}]
NAMES = ["", "x" * 100000, "%s%n%s", "\0", "\n\x1b[2J", "../../x", "\u202e\U0001f600"]
PAGES = [{"first_trial": U32}, {"first_record": U64}, {"only_changes": True, "changed_from": U64},
         {"only_changes": True, "first_trial": U32, "changed_from": 0}]


class Site:
    """A coordinator and the live sweep that it has."""

    def __init__(self, channel, attacker):
        self.channel, self.attacker, self.statuses = channel, attacker, collections.Counter()
        self.methods = {method.name: method for method in services(channel)["weir.Training"].methods if method.name in METHODS}

    def send(self, name, wires):
        """The status and the text."""
        status, text = call(self.channel, self.methods[name], wires)
        if status != "OK" and (not text or any(ord(letter) < 32 for letter in text)):
            sys.exit(f"{name}: {status}: no line of text: {text!r}")
        self.statuses[f"{name} {status}"] += 1
        return status, text

    def ask(self, name, **fields):
        return self.send(name, [message_class(self.methods[name].input_type)(**fields).SerializeToString()])

    def submission(self, changes):
        """The messages of a good sweep with these fields changed."""
        request = message_class(self.methods["Submit"].input_type)()
        self.attacker.fill_spec(request.spec)
        fields = {"name": "hostile", "spec": "x.yaml", "budget": {"trials": 3},
                  "space": [{"path": "train.optimizer.lr", "log": [1e-4, 1]}], **changes}
        request.sweep.MergeFrom(type(request.sweep)(**fields))
        request.model_bytes, request.chunk = len(self.attacker.model), self.attacker.model
        return request

    def refuse(self, what, status, text, words):
        if status != "INVALID_ARGUMENT" or words not in text:
            sys.exit(f"{str(what)[:200]}: {status}: {text[:300]} (expected: {words})")

    def extremes(self):
        for changes, key in EXTREMES:
            self.refuse(changes, *self.send("Submit", [self.submission(changes).SerializeToString()]), key)
        for budget in BUDGETS:
            self.refuse(budget, *self.ask("ExtendSweep", sweep=self.attacker.sweep, budget=budget), "budget")
        for method in ("GetSweep", "ExtendSweep", "StopSweep", "DeleteSweep"):
            for name in NAMES:
                status, text = self.ask(method, sweep=name)
                if status not in ("NOT_FOUND", "INVALID_ARGUMENT"):
                    sys.exit(f"{method} of {name[:50]!r}: {status}: {text[:300]}")
        for page in PAGES:
            status, text = self.ask("GetSweep", sweep=self.attacker.sweep, has_records=True, **page)
            if status != "OK":
                sys.exit(f"GetSweep {page}: {status}: {text}")

    def random_call(self, name):
        attacker, method = self.attacker, self.methods[name]
        if name != "Submit":
            self.send(name, attacker.requests(method))
            return
        request = self.submission({})
        for _ in range(attacker.random.choice((1, 1, 2, 4))):
            attacker.twist(request.sweep)
        wire = request.SerializeToString()
        self.send(name, [attacker.mutate(wire) if attacker.random.random() < 0.3 else wire])


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    target, seed, count, sweep, model = sys.argv[1:]
    attacker = Attacker(int(seed), "", open(model, "rb").read(), sweep)
    with grpc.insecure_channel(target) as channel:
        site = Site(channel, attacker)
        site.extremes()
        for number in range(int(count)):
            site.random_call(METHODS[number % len(METHODS)])
    print(json.dumps(site.statuses))


if __name__ == "__main__":
    main()
