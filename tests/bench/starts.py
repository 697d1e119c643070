"""How long a run takes from its submission to its first step: where the worker has its program and data loaded for another run,
where it has not, beside a run of lower priority, which gets the worker back, and beside one that goes on."""
import os
import statistics
import time

from harness import Folder, wait_for
from turns import SEAT_THREADS, Run, new_cluster, write_spec

STARTS = 2 if os.environ.get("WEIR_BENCH_QUICK") else 9


def starts_beside(folder, spec):
    """Runs come and go beside one that goes on, each loaded anew: seconds from submission to the first step."""
    come = []
    with new_cluster(folder, 0) as cluster:
        cluster.add_worker(SEAT_THREADS)
        first = Run(folder, cluster, spec, "first")
        wait_for(first.step, "steps")
        for number in range(STARTS):
            other = Run(folder, cluster, spec, f"other-{number}", f"train.seed={number + 2}")
            come.append(other.seconds_to_first_step())
            other.end()
        first.end()
    return come


def starts(folder, spec):
    """{what differs from the run before: seconds from submission to the first step}."""
    seconds = {"another learning rate": [], "another seed": []}
    with new_cluster(folder, 1) as cluster:
        for number in range(STARTS):
            for kind, rate in (("another seed", 0.05), ("another learning rate", 0.1)):
                run = Run(folder, cluster, spec, f"run-{number}-{kind[8]}", f"train.seed={number}", f"train.optimizer.lr={rate}")
                seconds[kind].append(run.seconds_to_first_step())
                run.end()
    return seconds


def urgent(folder, spec):
    """A run of higher priority comes and goes beside one that trains: (seconds from each submission to the first step,
    seconds from its end to the other's next step)."""
    come, gone = [], []
    with new_cluster(folder, 1) as cluster:
        low = Run(folder, cluster, spec, "low")
        for number in range(STARTS):
            step = low.step()
            wait_for(lambda: low.step() > step, "steps")
            high = Run(folder, cluster, spec, f"high-{number}", "priority=1")
            come.append(high.seconds_to_first_step())
            step = low.step()
            high.end()
            begin = time.monotonic()
            while low.step() <= step:
                time.sleep(0.001)
            gone.append(time.monotonic() - begin)
        low.end()
    return come, gone


def middle(seconds):
    return f"median {1000 * statistics.median(seconds):.0f} ms ({1000 * min(seconds):.0f} to {1000 * max(seconds):.0f})"


def main():
    with Folder() as folder:
        spec = write_spec(folder)
        print(f"starts: from submission to the first step of the demo's model, {STARTS} of each", flush=True)
        for kind, seconds in starts(folder, spec).items():
            print(f"  {kind} than the run before: {middle(seconds)}", flush=True)
        print(f"  beside a run that goes on: {middle(starts_beside(folder, spec))}", flush=True)
        come, gone = urgent(folder, spec)
        print(f"  of higher priority than a run that trains: {middle(come)}; from its end to the other's next step: {middle(gone)}")


if __name__ == "__main__":
    main()
