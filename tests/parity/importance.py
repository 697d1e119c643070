#!/usr/bin/env python3
"""Makes importance.json: samples of functions, and how important Optuna's fANOVA says that each parameter is.
tests/unit/client/importance_test.c compares ours. Needs Optuna and scikit-learn; run as

    python tests/parity/importance.py > tests/parity/importance.json
"""
import json
import math
import random

import optuna
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import create_trial

SAMPLES = 150

FUNCTIONS = {
    "linear": lambda x: 3 * x[0] + x[1],
    "branin": lambda x: (15 * x[1] - 5.1 / (4 * math.pi ** 2) * (15 * x[0] - 5) ** 2 + 5 / math.pi * (15 * x[0] - 5) - 6) ** 2
    + 10 * (1 - 1 / (8 * math.pi)) * math.cos(15 * x[0] - 5) + 10,
    "bowl": lambda x: (x[0] - 0.3) ** 2 + 0.25 * (x[1] - 0.6) ** 2 + 0.3 * x[0] * x[2],
    "ishigami": lambda x: math.sin(math.pi * (2 * x[0] - 1)) + 7 * math.sin(math.pi * (2 * x[1] - 1)) ** 2
    + 0.1 * (math.pi * (2 * x[2] - 1)) ** 4 * math.sin(math.pi * (2 * x[0] - 1)),
}


def importances(points, values):
    """Shares of the variance, averaged over Optuna's seeds."""
    study = optuna.create_study()
    space = {str(d): optuna.distributions.FloatDistribution(0, 1) for d in range(len(points[0]))}
    for point, value in zip(points, values):
        study.add_trial(create_trial(params={str(d): x for d, x in enumerate(point)}, distributions=space, value=value))
    shares = [optuna.importance.get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=seed),
                                                      normalize=False) for seed in range(5)]
    return [sum(share[str(d)] for share in shares) / len(shares) for d in range(len(points[0]))]


def main():
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    draws, cases = random.Random(1), []
    for name, function in FUNCTIONS.items():
        points = [[round(draws.random(), 4) for _ in range(3)] for _ in range(SAMPLES)]
        values = [round(function(point), 6) for point in points]
        cases.append(json.dumps({"name": name, "importances": [round(x, 4) for x in importances(points, values)],
                                 "points": points, "values": values}))
    print(f'{{"optuna": "{optuna.__version__}", "cases": [\n' + ",\n".join(cases) + "\n]}")


if __name__ == "__main__":
    main()
