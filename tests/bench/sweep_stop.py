"""How soon a sweep that is stopped frees its worker: from `weir sweep stop` to the record in the store, and from there to the
worker's order to leave the trial and to the end of its last microbatch, beside how long a microbatch takes."""
import datetime
import json
import os
import signal
import statistics
import time

from harness import Cluster, Folder, wait_for, weir

ROUNDS = 3 if os.environ.get("WEIR_BENCH_QUICK") else 20
LATE_MS = 100  # a worker that is free later than so long behind a microbatch is late
MODEL = ("lenet", "--channels", "32,64", "--hidden", "128", "--batch-norm", "--seed", "1")
TRAIN = "  steps: 10000000\n  batch: 128\n  microbatches: 8\n  seed: 1\n  optimizer: {lr: 0.05, momentum: 0.9}\n"
SWEEP = """name: stopped
spec: spec.yaml
search: {name: random}
budget: {trials: 100}
space: {train.optimizer.lr: {log: [0.001, 0.1]}}
"""


def logged_second(log, event):
    """By the wall clock; a log has milliseconds."""
    line = next(line for line in log.splitlines() if event in line)
    return datetime.datetime.fromisoformat(line.split()[0].replace("Z", "+00:00")).timestamp()


def stop_once(folder, path):
    """Milliseconds: from the command to the record, from the record to the order, from the record to the last microbatch's
    end; and a microbatch's."""
    timeline = folder.file(f"timeline-{time.monotonic_ns()}.json")
    with Cluster(folder, workers=0, store="file://" + folder.file(f"store-{time.monotonic_ns()}")) as cluster:
        worker = cluster.add_worker(options=("--trace", timeline))
        at = ("--coordinator", cluster.address)
        sweep = weir("sweep", path, *at).stdout.strip()
        run = sweep + "-0000"
        wait_for(lambda: cluster.json("status", run)["step"] > 3, "steps of a trial")
        asked = time.time()
        weir("sweep", "stop", sweep, *at)
        wait_for(lambda: f" unload run={run} " in worker.output(), "the trial's end")
        log = cluster.store.removeprefix("file://") + f"/records/sweeps/{sweep}/log"
        recorded = os.stat(os.path.join(log, sorted(os.listdir(log))[-1])).st_mtime_ns / 1e9
        worker.send(signal.SIGTERM)
        worker.wait()
        told = logged_second(worker.output(), f" unload run={run} ")
    with open(timeline) as file:
        spans = [event for event in json.load(file) if event.get("cat") == "train"]
    ended = (spans[-1]["ts"] + spans[-1]["dur"]) / 1e6 + time.time() - time.monotonic()
    return [1e3 * span for span in (recorded - asked, told - recorded, ended - recorded,
                                    statistics.median(event["dur"] for event in spans) / 1e6)]


def main():
    with Folder() as folder:
        folder.model(*MODEL)
        folder.spec(folder.file("lenet.onnx"), train=TRAIN, data="  split: [0.9, 0.1]\n", tail="eval: {every_steps: 10000000}\n")
        path = folder.file("sweep.yaml", SWEEP)
        rounds = [stop_once(folder, path) for _ in range(ROUNDS)]
    to_record, to_order, to_end, microbatch = zip(*rounds)
    print(f"stopping a sweep, a trial of the demo's model on a worker of one thread, {ROUNDS} times, a file store: medians (most)")
    for name, spans in (("from `weir sweep stop` to the record in the store", to_record),
                        ("from the record to the worker's order to leave the trial", to_order),
                        ("from the record to the end of the trial's last microbatch", to_end)):
        print(f"  {name}: {statistics.median(spans):.1f} ms ({max(spans):.1f})")
    late = sum(end > span + LATE_MS for end, span in zip(to_end, microbatch))
    print(f"  a microbatch takes {statistics.median(microbatch):.1f} ms; later than one and {LATE_MS} ms: {late} of {ROUNDS}")


if __name__ == "__main__":
    main()
