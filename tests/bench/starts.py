"""How long a run takes from its submission to its first step: where the worker has its program and data loaded for another run,
where it has not, beside a run of lower priority, which gets the worker back, and beside one that goes on. And how long `weir train`
takes besides what it computes, by a model that computes next to nothing."""
import os
import random
import statistics
import struct
import time

from formats import npy
from harness import Folder, wait_for, weir
from turns import SEAT_THREADS, Run, new_cluster, spans_of, write_spec

STARTS = 2 if os.environ.get("WEIR_BENCH_QUICK") else 9
TINY_STEPS, TINY_SAMPLES, TINY_WIDTH, TINY_CLASSES, TINY_MICROBATCHES = 20, 256, 16, 4, 2


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


def tiny_spec(folder):
    draw = random.Random(1)
    values = [draw.gauss(0, 1) for _ in range(TINY_SAMPLES * TINY_WIDTH)]
    labels = [draw.randrange(TINY_CLASSES) for _ in range(TINY_SAMPLES)]
    folder.file("x.npy", npy("<f4", (TINY_SAMPLES, TINY_WIDTH), struct.pack(f"<{len(values)}f", *values)))
    folder.file("labels.npy", npy("<i8", (TINY_SAMPLES,), struct.pack(f"<{len(labels)}q", *labels)))
    model = folder.model("mlp", "--input", TINY_WIDTH, "--hidden", 32, "--classes", TINY_CLASSES)
    return folder.file("tiny.yaml", f"""name: tiny
model: {{onnx: {model}, loss: cross_entropy}}
data: {{root: {folder.path}, train: {{format: npy, columns: {{image: x.npy, labels: labels.npy}}}}}}
train: {{steps: {TINY_STEPS}, batch: 32, microbatches: {TINY_MICROBATCHES}, optimizer: {{name: sgd, lr: 0.1}}}}
""")


def trains(folder, spec, workers):
    """Seconds from the command to its end, less those in which the busiest worker computes."""
    seconds = []
    for number in range(STARTS):
        out = folder.file(f"tiny-{workers}-{number}")
        begin = time.monotonic()
        weir("train", spec, "--workers", workers, "--threads", 1, "--out", out, "--trace", out + ".json")
        took = time.monotonic() - begin
        timelines = [f"{out}-{worker + 1}.json" for worker in range(workers)] if workers > 1 else [out + ".json"]
        seconds.append(took - max(sum(end - begin for begin, end, _ in spans_of(timeline)) for timeline in timelines))
    return seconds


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
        print(f"  of higher priority than a run that trains: {middle(come)}; from its end to the other's next step: {middle(gone)}", flush=True)
        tiny = tiny_spec(folder)
        for workers in (1, 2):
            print(f"  `weir train` of {TINY_STEPS} steps of a tiny model by {workers} worker{'s' * (workers > 1)}, besides what is computed: "
                  f"{middle(trains(folder, tiny, workers))}", flush=True)


if __name__ == "__main__":
    main()
