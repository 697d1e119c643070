"""Searchers beside Optuna's samplers, and bohb beside HpBandSter, whose authors wrote the paper: the regret on Branin (2
dimensions) and Hartmann6 (6) after 100 trials, one trial at a time, 60 seeds each (20 of gp, whose peer is slow). Prints
medians and fails where ours is worse than the margin allows. Run by bench.py in the environment of
tests/bench/requirements.txt; arguments: the search_bench program, and names of searchers (all). A peer has LIMIT_SECONDS for
its seeds; where that is not enough, both sides have as many as it came to.

The margin: the median of our regrets is at most 1.25 times the median of theirs, or our regrets are not significantly worse
(one-sided Mann-Whitney, p >= 0.05). Regrets below 1e-4 count as 1e-4, which no training run could tell apart."""
import functools
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

SEEDS, SEEDS_OF_GP, TRIALS, RATIO, LEVEL, FLOOR = 60, 20, 100, 1.25, 0.05, 1e-4
LIMIT_SECONDS = 300
ALPHA = numpy.array([1.0, 1.2, 3.0, 3.2])
A = numpy.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
                 [17, 8, 0.05, 10, 0.1, 14]])
P = 1e-4 * numpy.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
                        [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]])


def branin(u):
    x, y = 15 * u[0] - 5, 15 * u[1]
    bowl = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann6(u):
    return -float(ALPHA @ numpy.exp(-(A * (numpy.array(u) - P)**2).sum(axis=1)))


FUNCTIONS = {"branin": (branin, 2, 0.397887357729739), "hartmann6": (hartmann6, 6, -3.322368011415515)}
SAMPLERS = optuna.samplers


def optuna_best(make, evaluate, dimensions, seed):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=make(seed))
    study.optimize(lambda trial: evaluate([trial.suggest_float(f"x{i}", 0, 1) for i in range(dimensions)]), n_trials=TRIALS)
    return study.best_value


def hpbandster_best(evaluate, dimensions, seed):
    numpy.random.seed(seed)
    space = ConfigSpace.ConfigurationSpace(seed=seed)
    for i in range(dimensions):
        space.add(ConfigSpace.UniformFloatHyperparameter(f"x{i}", 0, 1))
    generator, best = BOHB(space), math.inf
    for _ in range(TRIALS):
        config = generator.get_config(1.0)[0]
        value = evaluate([config[f"x{i}"] for i in range(dimensions)])
        best = min(best, value)
        generator.new_result(types.SimpleNamespace(kwargs={"budget": 1.0, "config": config}, result={"loss": value},
                                                   exception=None))
    return best


# Ours: Optuna's sampler.
PEERS = {
    "random": lambda seed: SAMPLERS.RandomSampler(seed=seed),
    "sobol": lambda seed: SAMPLERS.QMCSampler(seed=seed),
    "tpe": lambda seed: SAMPLERS.TPESampler(seed=seed),
    "tpe univariate": lambda seed: SAMPLERS.TPESampler(seed=seed, multivariate=False),
    "bohb": None,
    "cmaes": lambda seed: SAMPLERS.CmaEsSampler(seed=seed),
    "gp": lambda seed: SAMPLERS.GPSampler(seed=seed),
}


def our_regret(program, name, function, seed):
    evaluate, dimensions, least = FUNCTIONS[function]
    with subprocess.Popen([program, name.split()[0], str(seed), str(dimensions), *name.split()[1:]], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as child:
        best = math.inf
        for _ in range(TRIALS):
            value = evaluate([float(number) for number in child.stdout.readline().split()])
            best = min(best, value)
            child.stdin.write(f"{value!r}\n")
            child.stdin.flush()
        child.stdin.close()
        child.stdout.read()
    return best - least


def their_regret(name, function, seed):
    evaluate, dimensions, least = FUNCTIONS[function]
    warnings.simplefilter("ignore")
    best = optuna_best(PEERS[name], evaluate, dimensions, seed) if PEERS[name] else hpbandster_best(evaluate, dimensions, seed)
    return best - least


def compare(program, name, function):
    """Prints a line; whether ours keeps the margin."""
    seeds = SEEDS_OF_GP if name == "gp" else SEEDS
    theirs = peer_seeds.find(functools.partial(their_regret, name, function), seeds, LIMIT_SECONDS)
    if not theirs:
        print(f"  {function:10} {name:14} left out: the peer had no seed after {LIMIT_SECONDS} s", flush=True)
        return True
    ours = [our_regret(program, name, function, seed) for seed in range(len(theirs))]
    ours, theirs = ([max(regret, FLOOR) for regret in side] for side in (ours, theirs))
    middle = statistics.median(ours), statistics.median(theirs)
    worse = mannwhitneyu(ours, theirs, alternative="greater").pvalue
    keeps = middle[0] <= RATIO * middle[1] or worse >= LEVEL
    print(f"  {function:10} {name:14} {middle[0]:9.5f}   peer {middle[1]:9.5f}   ratio {middle[0] / middle[1]:5.2f}   "
          f"p {worse:.3f}   {'ok' if keeps else 'WORSE'}{'' if len(theirs) == seeds else f'   {len(theirs)} seeds'}", flush=True)
    return keeps


def main():
    os.environ["OMP_NUM_THREADS"] = "1"  # of PyTorch in the processes below
    program, names = sys.argv[1], sys.argv[2:] or PEERS
    print(f"searchers beside Optuna {optuna.__version__} and HpBandSter: median regret of {SEEDS} seeds ({SEEDS_OF_GP} of gp) "
          f"after {TRIALS} trials")
    kept = [compare(program, name, function) for function in FUNCTIONS for name in names]
    print("searchers: CPU time of one suggestion in ten dimensions, ms, after 100 and after 500 trials")
    for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
        print("  " + line)
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
