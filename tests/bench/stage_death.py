"""How long a run stands still whose model's stages are on different workers when one of these is lost: from the signal to
the end of the step that it delayed, beside the usual step. Two workers of one executor have a stage each; a third, where
one is to spare, has built its program. All runs end in the weights of one that nobody disturbs.

Between repetitions the run is held (gate.py), so that each begins with the same number of workers, all of them ready."""
import itertools
import json
import os
import random
import signal
import statistics
import time

from gate import Gate
from harness import Cluster, Folder, Process, done_event, program, read_metrics, wait_for, weir

REPETITIONS = 1 if os.environ.get("WEIR_BENCH_QUICK") else 7
WARM_UP, CALM, AFTER = 10, 8, 6  # steps: at first; of each repetition before the signal, and from it on
STEPS = WARM_UP + REPETITIONS * (CALM + AFTER)
MODEL = ("lenet", "--channels", "32,64", "--hidden", "128", "--batch-norm", "--seed", "1")
STAGES = 2


def write_spec(folder):
    """Over all of Fashion-MNIST: a spare worker that takes up other stages than its own opens it anew."""
    train = (f"  steps: {STEPS}\n  batch: 384\n  microbatches: 8\n  seed: 3\n"
             "  optimizer: {name: sgd, lr: 0.05, momentum: 0.9}\n")
    return folder.spec(folder.model(*MODEL), train=train, tail=f"workers: {{stages: {STAGES}}}\n")


class Repetitions:
    """Of losing workers of a run. workers: how many it has before each."""

    def __init__(self, metrics, gate, coordinator, workers):
        self.metrics, self.gate, self.coordinator, self.workers = metrics, gate, coordinator, workers
        self.at, self.seconds, self.usual, self.lost = {}, {}, [], []

    def wait(self, step):
        """Until the line of that step is there; when each line came is kept."""
        def has_come():
            now = time.monotonic()
            for event in read_metrics(self.metrics):
                if event["event"] == "step":
                    self.at.setdefault(event["step"], now)
                    self.seconds[event["step"]] = event["seconds"]
            return step in self.at
        wait_for(has_come, f"step {step}")

    def ends(self, first, last):
        """{step: when it was complete}: by the server's times between steps, and by the line that came soonest after its
        step. Others come late where the machine is busy."""
        steps = range(first, last + 1)
        passed = dict(zip(steps, itertools.accumulate(self.seconds[step] for step in steps)))
        begin = min(self.at[step] - passed[step] for step in passed)
        return {step: begin + after for step, after in passed.items()}

    def rows(self):
        return json.loads(weir("workers", "--json", "--coordinator", self.coordinator()).stdout)

    def pids(self):
        """Of the workers of the team, by their stage; None unless all workers are ready."""
        ready = [row for row in self.rows() if row["state"] == "ready"]
        found = {row["first_stage"]: row["pid"] for row in ready if row["microbatches"] > 0}
        return found if len(ready) == self.workers and len(found) == STAGES else None

    def run(self, disturb, restore=lambda: None):
        """disturb(pids): sends the signals."""
        for number in range(REPETITIONS):
            first = WARM_UP + number * (CALM + AFTER)
            self.gate.stop_at(first - 1)
            self.wait(first - 1)
            pids = wait_for(self.pids, "workers at all stages, and those to spare")
            self.gate.stop_at(first + CALM + AFTER - 1)
            self.wait(first + CALM - 1)
            usual = statistics.median(self.seconds[step] for step in range(first + 1, first + CALM))
            time.sleep(random.Random(number).uniform(0, usual))
            began = time.monotonic()
            disturb(pids)
            self.wait(first + CALM + AFTER - 1)
            ends = self.ends(first, first + CALM + AFTER - 1)
            # Of the step at the signal everything may have been pushed: then the next one is delayed.
            delayed = max([step for step in ends if ends[step] > began][:2], key=self.seconds.get)
            self.usual.append(usual)
            self.lost.append(ends[delayed] - began)
            restore()
        self.gate.open()

    def tell(self, what):
        print(f"  {what}: {statistics.median(self.lost):.2f} s (median of {REPETITIONS}; {min(self.lost):.2f} to "
              f"{max(self.lost):.2f}); the usual step {1000 * statistics.median(self.usual):.0f} ms", flush=True)


class Case:
    """A run on a cluster of its own. name: what is printed; signals: {stage: signal}; spares: workers besides the team;
    are_replaced: a new worker is started for each that is lost, at once; else before the next repetition."""

    def __init__(self, name, signals, spares, are_replaced):
        self.name, self.signals, self.spares, self.are_replaced = name, signals, spares, are_replaced

    def measure(self, folder, spec):
        """The hash of the weights at the end."""
        metrics, gate = folder.file("metrics.jsonl"), Gate(folder)
        store = f"file://{folder.file('store')}-{self.name.replace(' ', '-')}"
        with Cluster(folder, workers=STAGES + self.spares, gate=gate, store=store) as cluster:
            repetitions = Repetitions(metrics, gate, lambda: cluster.address, STAGES + self.spares)
            gate.stop_at(0)
            with Process(program("weir"), "submit", spec, "--follow", "--metrics", metrics, "--coordinator",
                         cluster.address) as client:
                lost = []

                def restart():
                    while lost:
                        worker = lost.pop()
                        worker.send(signal.SIGKILL)  # it may only be stopped
                        worker.wait()
                        cluster.add_worker()

                def disturb(pids):
                    for stage, number in self.signals.items():
                        worker, = (worker for worker in cluster.workers if worker.child.pid == pids[stage])
                        worker.send(number)
                        lost.append(worker)
                    if self.are_replaced:
                        restart()
                repetitions.run(disturb, restart)
                assert client.wait() == 0, client.output()[-3000:]
        repetitions.tell(self.name)
        return take_weights(metrics)


def take_weights(metrics):
    weights = done_event(metrics)["weights_sha256"]
    assert not any("incarnation" in event for event in read_metrics(metrics)), "a run was rolled back"
    os.remove(metrics)
    return weights


def train(folder, spec, stage=None):
    """The hash of the weights by `weir train`, which starts each worker again that dies; without a stage nobody does."""
    metrics, gate = folder.file("metrics.jsonl"), Gate(folder)
    with Process(program("weir"), "train", spec, "--workers", STAGES, "--threads", 1, "--out", folder.file("out"), "--force",
                 "--metrics", metrics, env=gate.environment) as training:
        if stage is not None:
            gate.stop_at(0)
            address = wait_for(lambda: next((word for word in training.output().split() if word.startswith("127.0.0.1:")),
                                            None), "the coordinator's address")
            repetitions = Repetitions(metrics, gate, lambda: address, STAGES)
            repetitions.run(lambda pids: os.kill(pids[stage], signal.SIGKILL))
            repetitions.tell(f"SIGKILL of stage {stage}, weir train starts the worker again")
        assert training.wait() == 0, training.output()[-3000:]
    return take_weights(metrics)


CASES = [case for stage in range(STAGES) for case in (
    Case(f"SIGKILL of stage {stage}, a spare worker", {stage: signal.SIGKILL}, 1, False),
    Case(f"SIGSTOP of stage {stage}, a spare worker", {stage: signal.SIGSTOP}, 1, False),
    Case(f"SIGKILL of stage {stage}, a new worker is started at once", {stage: signal.SIGKILL}, 0, True))]
CASES.append(Case("SIGKILL of both stages, a spare worker, and new ones are started at once",
                  {stage: signal.SIGKILL for stage in range(STAGES)}, 1, True))


def main():
    with Folder() as folder:
        spec = write_spec(folder)
        print("from the loss of a worker of a team of two to the end of the step that it delayed:")
        expected = train(folder, spec)
        for case in CASES:
            assert case.measure(folder, spec) == expected, f"{case.name}: the weights differ"
        for stage in range(STAGES):
            assert train(folder, spec, stage) == expected, f"weir train, stage {stage}: the weights differ"
        print("  weights_sha256: that of the undisturbed run each time")


if __name__ == "__main__":
    main()
