"""Processes die at seeded steps of writing, committing and deleting checkpoints; `make chaos` takes many more steps."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chaos"))
from crash_points import run_points
from harness import main

SEED = "check"


def outlives(store, points):
    return run_points(store, points, SEED, lambda line: print("# " + line, flush=True))


def test_a_run_on_files_outlives_a_process_that_dies_at_any_step():
    assert outlives("file", {"kill": 10})


def test_a_run_on_files_outlives_a_power_cut_at_any_step():
    assert outlives("file", {"power": 5})


def test_a_run_on_redis_outlives_a_process_or_a_redis_that_dies_at_any_step():
    assert outlives("redis", {"kill": 2, "redis": 1, "redis-power": 1, "redis-power-everysec": 1})


if __name__ == "__main__":
    main(globals())
