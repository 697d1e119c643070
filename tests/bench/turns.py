"""Runs that take turns on a worker: how long a hand-over takes, what the turns cost beside one run alone, and how evenly the
time is shared. And runs beside each other on a worker, each with some of its executors: how evenly these are shared, and what
they compute together."""
import collections
import json
import os
import signal
import statistics
import tempfile
import time

from harness import Cluster, Folder, Process, program, wait_for, weir

IS_QUICK = bool(os.environ.get("WEIR_BENCH_QUICK"))
SHARED_SECONDS, ALONE_SECONDS = (40, 4) if IS_QUICK else (60, 15)
WEIGHTS = (1, 3)
SEAT_THREADS, SEAT_SECONDS, SETTLE_SECONDS = 4, 4 if IS_QUICK else 30, 3
FOR_EVER = 10000000  # steps
TAIL_BYTES = 4096
MODEL = ("lenet", "--channels", "32,64", "--hidden", "128", "--batch-norm", "--seed", "1")


def write_spec(folder):
    train = (f"  steps: {FOR_EVER}\n  batch: 128\n  microbatches: 8\n  seed: 1\n"
             "  optimizer: {lr: 0.05, momentum: 0.9}\n")
    return folder.spec(folder.model(*MODEL), train=train)


class Run:
    """A run that never ends by itself, followed by a client."""

    def __init__(self, folder, cluster, spec, name, *settings):
        self.name, self.at, self.metrics = name, ("--coordinator", cluster.address), folder.file(name + ".jsonl", "")
        self.begin = time.monotonic()
        self.client = Process(program("weir"), "submit", spec, "name=" + name, *settings, "--follow", "--metrics",
                              self.metrics, *self.at)

    def step(self):
        """Its steps so far, by the end of the file of metrics: a look at all of it would take longer and longer."""
        with open(self.metrics, "rb") as file:
            file.seek(max(0, os.path.getsize(self.metrics) - TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]
        events = (json.loads(line) for line in reversed(lines) if line.startswith(b"{"))
        return next((event["step"] + 1 for event in events if event["event"] == "step"), 0)

    def seconds_to_first_step(self):
        """By the file of metrics, which is looked at each millisecond."""
        while not os.path.getsize(self.metrics) or not self.step():
            time.sleep(0.001)
        return time.monotonic() - self.begin

    def end(self):
        weir("cancel", self.name, *self.at)
        self.client.wait()
        self.client.__exit__()


def new_cluster(folder, workers):
    """With a store of its own."""
    return Cluster(folder, workers=workers, store="file://" + tempfile.mkdtemp(dir=folder.path))


def spans_of(timeline):
    """[(begin, end, thread)] of microbatches, in seconds, in their order. Each run has an executor's thread of its own."""
    with open(timeline, encoding="utf-8") as file:
        events = [event for event in json.load(file) if event.get("cat") == "train"]
    return sorted((event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6, event["tid"]) for event in events)


def rate(runs, seconds):
    """Steps a second of all of them together."""
    steps, begin = sum(run.step() for run in runs), time.monotonic()
    time.sleep(seconds)
    return (sum(run.step() for run in runs) - steps) / (time.monotonic() - begin)


def alone_and_again(run, seconds):
    """Its steps a second while it is alone, and once more as the control."""
    wait_for(run.step, "steps")
    return rate((run,), seconds), rate((run,), seconds)


def by_alone(together, alone, again):
    return f"{together / alone:.2f}, one's alone again {again / alone:.2f}"


def share(folder, spec, weights):
    """Two runs on a worker of one thread: (seconds of each hand-over, in words their steps a second together by one run's alone,
    the second's part of the worker's time)."""
    timeline = folder.file("timeline.json", "")
    with new_cluster(folder, 0) as cluster:
        worker = cluster.add_worker(1, options=("--trace", timeline))
        first = Run(folder, cluster, spec, "first", f"workers.weight={weights[0]}")
        alone = alone_and_again(first, ALONE_SECONDS)
        second = Run(folder, cluster, spec, "second", f"workers.weight={weights[1]}")
        wait_for(second.step, "steps of the second")
        shared = rate((first, second), SHARED_SECONDS)
        first.end()
        second.end()
        worker.send(signal.SIGTERM)
        worker.wait()
    spans = spans_of(timeline)
    gaps = [after[0] - before[1] for before, after in zip(spans, spans[1:]) if before[2] != after[2]]
    last = spans[-1][1]
    window = [span for span in spans if last - SHARED_SECONDS <= span[0]]
    busy = sum(end - begin for begin, end, _ in window)
    of_first = sum(end - begin for begin, end, thread in window if thread == spans[0][2])
    return gaps[1:], by_alone(shared, *alone), 1 - of_first / busy  # the first one loads the second run


def executor_seconds(timeline, begin, end):
    """{run: seconds of its executors within that time}, by the worker's timeline: what executors computed, not what was dealt
    to them. Runs are numbered in the order in which they are loaded."""
    with open(timeline, encoding="utf-8") as file:
        events = json.load(file)
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    seconds = collections.Counter()
    for event in events:
        name = names.get(event.get("tid"), "")
        if event.get("cat") != "train" or not name.startswith("executor "):
            continue
        run = int(name.split("(run ")[1].rstrip(")")) if "(run " in name else 1
        seconds[run] += max(0, min(end, (event["ts"] + event["dur"]) / 1e6) - max(begin, event["ts"] / 1e6))
    return seconds


def seats(folder, spec, weights):
    """Two runs beside each other on a worker of several threads, by their weights: the second's parts of the executor-seconds and
    of the steps."""
    timeline = folder.file("timeline.json", "")
    with new_cluster(folder, 0) as cluster:
        worker = cluster.add_worker(SEAT_THREADS, options=("--trace", timeline))
        runs = []
        for name, weight in zip(("first", "second"), weights):
            runs.append(Run(folder, cluster, spec, name, f"workers.weight={weight}"))
            wait_for(runs[-1].step, "steps")
        time.sleep(SETTLE_SECONDS)  # executors are dealt anew when the second has loaded
        steps, begin = [run.step() for run in runs], time.monotonic()
        time.sleep(SHARED_SECONDS)
        steps, end = [run.step() - step for run, step in zip(runs, steps)], time.monotonic()
        for run in runs:
            run.end()
        worker.send(signal.SIGTERM)
        worker.wait()
    seconds = executor_seconds(timeline, begin, end)
    return seconds[2] / (seconds[1] + seconds[2]), steps[1] / sum(steps), seconds[1] + seconds[2]


def beside(folder, spec, microbatches):
    """Two runs of so many microbatches beside each other on a worker of several threads: in words their steps a second together by
    one's alone. Turns would make it 1 at most."""
    with new_cluster(folder, 0) as cluster:
        cluster.add_worker(SEAT_THREADS)
        first = Run(folder, cluster, spec, "first", f"train.microbatches={microbatches}")
        alone = alone_and_again(first, SEAT_SECONDS)
        second = Run(folder, cluster, spec, "second", f"train.microbatches={microbatches}")
        wait_for(second.step, "steps of the second")
        together = rate((first, second), SEAT_SECONDS)
        first.end()
        second.end()
    return by_alone(together, *alone)


def main():
    with Folder() as folder:
        spec = write_spec(folder)
        print(f"turns: two runs of the demo's model on a worker of one thread, {SHARED_SECONDS} s", flush=True)
        for weights in ((1, 1), WEIGHTS):
            gaps, cost, part = share(folder, spec, weights)
            print(f"  weights {weights[0]} and {weights[1]}: {len(gaps)} hand-overs, median {1000 * statistics.median(gaps):.0f} ms "
                  f"(most {1000 * max(gaps):.0f}); steps a second of both by one's alone {cost}; the second has "
                  f"{100 * part:.1f} % of the time (by weight {100 * weights[1] / sum(weights):.0f} %)", flush=True)
        for weights in ((1, 1), WEIGHTS):
            part, of_steps, seconds = seats(folder, spec, weights)
            wanted = weights[1] / sum(weights)
            print(f"  two runs of weights {weights[0]} and {weights[1]} beside each other on a worker of {SEAT_THREADS} threads, "
                  f"{SHARED_SECONDS} s: the second has {100 * part:.1f} % of {seconds:.0f} executor-seconds, "
                  f"{100 * abs(part / wanted - 1):.1f} % off its {100 * wanted:.0f} %, and {100 * of_steps:.1f} % of the steps",
                  flush=True)
        for microbatches in (2, 8):
            print(f"  two runs of {microbatches} microbatches beside each other on a worker of {SEAT_THREADS} threads, {SEAT_SECONDS} s: "
                  f"steps a second of both by one's alone {beside(folder, spec, microbatches)}", flush=True)


if __name__ == "__main__":
    main()
