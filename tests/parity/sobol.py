#!/usr/bin/env python3
"""Makes sobol.json: points of the unscrambled Sobol sequence in 64 dimensions by scipy.stats.qmc, in scipy's order (Gray's
code). tests/unit/common/sweep/sweep_numbers_test.c compares ours. Needs tests/bench/requirements.txt; run as

    python tests/parity/sobol.py > tests/parity/sobol.json
"""
import json

import scipy
from scipy.stats import qmc

DIMENSIONS, SHOWN = 64, [*range(1, 17), 100, 255, 256, 1000, 1023]


def main():
    points = qmc.Sobol(DIMENSIONS, scramble=False).random(1024)
    lines = ["  " + json.dumps([index, [float(place) for place in points[index]]]) for index in SHOWN]
    print(f'{{"scipy": "{scipy.__version__}", "points": [\n' + ",\n".join(lines) + "\n]}")


if __name__ == "__main__":
    main()
