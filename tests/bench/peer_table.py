"""Whole sweeps, searchers with schedulers, beside Optuna's samplers with pruners and HpBandSter's BOHB: how far the
configuration that a sweep names best is from the best of search_table.csv, in accuracy after 27 epochs, when all trials
together had 810 epochs (30 trainings to the end), one trial at a time, 100 seeds each. Prints medians and fails where ours
is worse than the margin allows. Run by bench.py in the environment of tests/bench/requirements.txt; argument: the
table_bench program.

The margin, stated before the first run: that of peer_search.py, with regrets below 0.002 (two of the 1,024 images) counting
as 0.002. HpBandSter's trials that go on are counted as ours: only the epochs that are new. A peer has LIMIT_SECONDS for its
seeds; where that is not enough, both sides have as many as it came to."""
import csv
import functools
import itertools
import math
import os
import statistics
import subprocess
import sys
import types
import warnings

import ConfigSpace
import numpy
import optuna
import peer_seeds
from hpbandster.optimizers.config_generators.bohb import BOHB
from scipy.stats import mannwhitneyu

SEEDS, EPOCHS, RATIO, LEVEL, FLOOR = int(os.environ.get("WEIR_BENCH_SEEDS", "100")), 810, 1.25, 0.05, 0.002
LIMIT_SECONDS = 480
SIZES, RUNGS, ETA = (8, 4, 4, 4), (1, 3, 9, 27), 3
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "search_table.csv")
SAMPLERS = {"random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
            "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
            "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed)}
PRUNERS = {"none": optuna.pruners.NopPruner,
           "median": optuna.pruners.MedianPruner,
           "asha": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=ETA),
           "hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=1, max_resource=RUNGS[-1], reduction_factor=ETA)}
PAIRS = [("random", "none"), ("tpe", "none"), ("cmaes", "none"), ("tpe", "median"), ("random", "asha"), ("tpe", "asha"),
         ("cmaes", "asha"), ("random", "hyperband"), ("tpe", "hyperband"), ("bohb", "hyperband")]


def read_table():
    with open(TABLE, newline="") as file:
        rows = list(csv.reader(file))[1:]
    return {tuple(map(int, row[:4])): [float(value) for value in row[4:8]] for row in rows}


class Spent(Exception):
    """All epochs are used."""


class Purse:
    """A table, and the epochs that may still be looked at."""

    def __init__(self):
        self.table, self.left, self.best = read_table(), EPOCHS, (-1, 0, 0)

    def look(self, unit, rung):
        """The accuracy at a rung, where the one before was looked at already. The best trial is one of those that have come
        furthest."""
        epochs = RUNGS[rung] - (RUNGS[rung - 1] if rung else 0)
        if epochs > self.left:
            raise Spent
        self.left -= epochs
        values = self.table[tuple(min(int(u * size), size - 1) for u, size in zip(unit, SIZES))]
        self.best = max(self.best, (rung, values[rung], values[-1]))
        return values[rung]


def optuna_finds(sampler, pruner, seed):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    purse = Purse()
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed), pruner=PRUNERS[pruner](), direction="maximize",
                                study_name=str(seed))  # of which its Hyperband makes the brackets' order

    def train(trial):
        unit = [trial.suggest_float(f"x{i}", 0, 1) for i in range(len(SIZES))]
        for rung, epochs in enumerate(RUNGS):
            value = purse.look(unit, rung)
            trial.report(value, epochs)
            if epochs < RUNGS[-1] and trial.should_prune():
                raise optuna.TrialPruned
        return value
    try:
        study.optimize(train, n_trials=10000)
    except Spent:
        pass
    return purse.best[2]


def hpbandster_finds(seed):
    """HyperBand's iterations as hpbandster.optimizers.BOHB makes them, without its servers and workers."""
    warnings.simplefilter("ignore")
    numpy.random.seed(seed)
    space = ConfigSpace.ConfigurationSpace(seed=seed)
    for i in range(len(SIZES)):
        space.add(ConfigSpace.UniformFloatHyperparameter(f"x{i}", 0, 1))
    generator, purse = BOHB(space), Purse()
    try:
        for iteration in itertools.count():
            s = len(RUNGS) - 1 - iteration % len(RUNGS)
            first = math.floor(len(RUNGS) / (s + 1)) * ETA**s
            configs = [None] * first  # each is drawn as it begins, from what is known then
            for number in range(s + 1):
                rung, losses = len(RUNGS) - 1 - s + number, []
                for place, config in enumerate(configs):
                    config = configs[place] = config or generator.get_config(float(RUNGS[rung]))[0]
                    unit = [config[f"x{i}"] for i in range(len(SIZES))]
                    for below in range(rung if number == 0 else 0):  # a bracket's first rung is all of its epochs
                        purse.look(unit, below)
                    losses.append(1 - purse.look(unit, rung))
                    generator.new_result(types.SimpleNamespace(kwargs={"budget": float(RUNGS[rung]), "config": config},
                                                               result={"loss": losses[-1]}, exception=None))
                order = sorted(range(len(configs)), key=lambda at: losses[at])
                configs = [configs[at] for at in order[:max(int(first * ETA**-(number + 1)), 1)]]
    except Spent:
        return purse.best[2]


def their_accuracy(searcher, scheduler, seed):
    return hpbandster_finds(seed) if searcher == "bohb" else optuna_finds(searcher, scheduler, seed)


def compare(program, searcher, scheduler):
    """Prints a line; whether ours keeps the margin."""
    best = max(values[-1] for values in read_table().values())
    theirs = peer_seeds.find(functools.partial(their_accuracy, searcher, scheduler), SEEDS, LIMIT_SECONDS)
    if not theirs:
        print(f"  {searcher:7} {scheduler:10} left out: the peer had no seed after {LIMIT_SECONDS} s", flush=True)
        return True
    done = subprocess.run([program, TABLE, searcher, scheduler, str(EPOCHS), str(len(theirs))], capture_output=True, text=True,
                          check=True)
    ours, theirs = ([max(best - found, FLOOR) for found in side] for side in (map(float, done.stdout.split()), theirs))
    middle = statistics.median(ours), statistics.median(theirs)
    worse = mannwhitneyu(ours, theirs, alternative="greater").pvalue
    keeps = middle[0] <= RATIO * middle[1] or worse >= LEVEL
    print(f"  {searcher:7} {scheduler:10} {middle[0]:8.4f} (mean {statistics.mean(ours):.4f})   peer {middle[1]:8.4f} (mean "
          f"{statistics.mean(theirs):.4f})   ratio {middle[0] / middle[1]:5.2f}   p {worse:.3f}   {'ok' if keeps else 'WORSE'}"
          f"{'' if len(theirs) == SEEDS else f'   {len(theirs)} seeds'}", flush=True)
    return keeps


def main():
    os.environ["OMP_NUM_THREADS"] = "1"  # of NumPy in the processes below
    print(f"sweeps of {EPOCHS} epochs over a table of {len(read_table())} trainings, beside Optuna {optuna.__version__} and, "
          f"bohb, HpBandSter: median regret of {SEEDS} seeds")
    kept = [compare(sys.argv[1], *pair) for pair in PAIRS]
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
