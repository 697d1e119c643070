"""The coordinator, servers, workers and clients die at every record of a sweep's log; `make chaos` takes more seeds."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chaos"))
from harness import main
from sweep_deaths import try_seeds


def test_a_sweep_outlives_deaths_at_every_record_of_its_log():
    assert try_seeds(range(3), lambda line: print("# " + line, flush=True))


if __name__ == "__main__":
    main(globals())
