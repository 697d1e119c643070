"""The promise: which machines computed what, and who came and went, does not change one bit of the weights."""
import json
import os
import signal
import time

from gate import Gate
from harness import (DATA, Cluster, Folder, Process, children_of, done_event, kept, main, newest_step, outcome, program,
                     read_metrics, wait_for, weir)

STEPS = 24
# Batch norm for the statistics blocks, convolutions for the blocked layouts, dropout for the random numbers.
LENET = ("lenet", "--channels", "8,16", "--batch-norm", "--dropout", "0.25", "--seed", "3", "--hidden")
SMALL = (*LENET, "300,300")
MODEL = (*LENET, "1024,1024")  # two tensors of many blocks
# workers, servers, threads per worker
CLUSTERS = ((1, 1, 1), (3, 1, 2), (2, 2, 5), (4, 3, 1))


def train_section(microbatches, seed=7, steps=STEPS):
    return (f"  steps: {steps}\n  batch: 96\n  microbatches: {microbatches}\n  seed: {seed}\n"
            "  optimizer: {name: sgd, lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.0005}\n"
            "  schedule: {name: cosine, warmup_steps: 5}\n")


def write_spec(folder, microbatches, **options):
    folder.small_data(960, 12)
    path = folder.spec(folder.file("lenet.onnx"), name=f"spec-{microbatches}-{len(options)}.yaml",
                       train=train_section(microbatches, **options))
    with open(path) as file:
        return folder.file(path, file.read().replace(DATA, folder.path).replace("-ubyte.gz", ""))


def train(folder, spec, workers, servers, threads):
    name = f"{os.path.basename(spec)}-{workers}-{servers}-{threads}"
    metrics = folder.file(name + ".jsonl")
    weir("train", spec, "--workers", workers, "--servers", servers, "--threads", threads, "--out",
         folder.file(name), "--metrics", metrics)
    return done_event(metrics)["weights_sha256"]


def test_any_cluster_ends_in_the_same_weights():
    with Folder() as folder:
        folder.model(*MODEL)
        inspected = weir("inspect", folder.file("lenet.onnx"), "--json").stdout
        assert '"blocks": ' in inspected and int(inspected.split('"blocks": ')[1].split("\n")[0].rstrip(",}")) >= 20
        hashes = {}
        for microbatches in (8, 6):
            spec = write_spec(folder, microbatches)
            found = {cluster: train(folder, spec, *cluster) for cluster in CLUSTERS}
            assert len(set(found.values())) == 1, f"microbatches {microbatches}: {found}"
            hashes[microbatches] = found[CLUSTERS[0]]
        assert hashes[8] != hashes[6], "another split of the batch sums in another order"
        other = train(folder, write_spec(folder, 8, seed=8), *CLUSTERS[0])
        assert other != hashes[8], "another seed trains on another order of samples"


def test_a_worker_killed_and_another_started_in_mid_run_change_nothing():
    with Folder() as folder:
        folder.model(*SMALL)
        spec = write_spec(folder, 8, steps=60)
        calm = kept("same-hash-8-60", lambda: train(folder, spec, 1, 1, 2))
        gate, metrics = Gate(folder), folder.file("stormy.jsonl")
        gate.stop_at(15)
        with Process(program("weir"), "train", spec, "--workers", 3, "--servers", 2, "--threads", 1, "--no-restart",
                     "--out", folder.file("stormy"), "--metrics", metrics, env=gate.environment) as training:
            wait_for(lambda: newest_step(metrics) >= 5, "step 5")
            address = next(word for word in training.output().split() if word.startswith("127.0.0.1:")).rstrip(".,")

            def ready():
                workers = json.loads(weir("workers", "--coordinator", address, "--json").stdout)
                return [worker["pid"] for worker in workers if worker["state"] == "ready"]
            victim = wait_for(lambda: len(pids := ready()) == 3 and pids, "three workers")[1]
            os.kill(victim, signal.SIGKILL)
            gate.stop_at(25)
            wait_for(lambda: newest_step(metrics) >= 25, "steps after the kill")
            with Process(program("weir-worker"), "--coordinator", address, "--threads", 2, env=gate.environment) as newcomer:
                wait_for(lambda: newcomer.child.pid in ready(), "the newcomer to take part")
                gate.open()
                assert training.wait() == 0, training.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == calm
        steps = [event for event in read_metrics(metrics) if event["event"] == "step"]
        assert [event["step"] for event in steps] == list(range(60)), "every step once, in order"
        workers = [event["workers"] for event in steps]
        assert 2 in workers and workers[-1] == 3, f"the newcomer took part: {workers}"


def test_a_worker_that_is_told_to_stop_hands_its_work_back():
    with Folder() as folder:
        folder.model(*SMALL)
        spec = write_spec(folder, 6, steps=40)
        calm = kept("same-hash-6-40", lambda: train(folder, spec, 1, 1, 2))
        gate, metrics = Gate(folder), folder.file("drained.jsonl")
        gate.stop_at(20)
        with Process(program("weir"), "train", spec, "--workers", 2, "--threads", 1, "--no-restart", "--out",
                     folder.file("drained"), "--metrics", metrics, env=gate.environment) as training:
            wait_for(lambda: newest_step(metrics) >= 3, "step 3")
            leaver = children_of(training.child.pid, "weir-worker")[0]
            os.kill(leaver, signal.SIGTERM)
            wait_for(lambda: leaver not in children_of(training.child.pid, "weir-worker"), "the worker's exit")
            gate.open()
            assert training.wait() == 0, training.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == calm


def test_a_frozen_worker_is_evicted_and_the_run_goes_on():
    with Folder() as folder:
        folder.model(*SMALL)
        spec = write_spec(folder, 8, steps=40)
        calm = kept("same-hash-8-40", lambda: train(folder, spec, 1, 1, 2))
        gate, metrics = Gate(folder), folder.file("frozen.jsonl")
        gate.stop_at(20)
        with Process(program("weir"), "train", spec, "--workers", 2, "--threads", 1, "--out", folder.file("frozen"),
                     "--metrics", metrics, env=gate.environment) as training:
            wait_for(lambda: newest_step(metrics) >= 3, "step 3")
            sleeper = children_of(training.child.pid, "weir-worker")[0]
            os.kill(sleeper, signal.SIGSTOP)
            gate.open()
            try:
                assert training.wait() == 0, training.output()[-3000:]
            finally:
                if os.path.exists(f"/proc/{sleeper}"):
                    os.kill(sleeper, signal.SIGCONT)
        assert done_event(metrics)["weights_sha256"] == calm


def test_all_workers_killed_at_once_lose_no_step_and_no_evaluation():
    with Folder() as folder:
        folder.small_data(960, 300)
        folder.model(*SMALL)
        spec = folder.small_spec("lenet.onnx", 6, steps=60, eval_steps=3)

        def calm():
            weir("train", spec, "--out", folder.file("calm"))
            return outcome(folder.file("calm/metrics.jsonl"))
        expected = kept("same-hash-evaluated", calm)
        metrics = folder.file("stormy.jsonl")
        with Cluster(folder, servers=2, workers=3, is_patient=True, gate=Gate(folder)) as cluster:
            cluster.gate.stop_at(8)
            with Process(program("weir"), "submit", spec, "--follow", "--coordinator", cluster.address, "--metrics",
                         metrics) as client:
                for step in range(2, 50, 6):
                    cluster.gate.stop_at(step + 6)
                    wait_for(lambda: newest_step(metrics) >= step, f"step {step}")
                    time.sleep(step / 1000)  # anywhere in a step or an evaluation
                    for worker in cluster.workers:
                        worker.send(signal.SIGKILL)
                    cluster.workers = []
                    for threads in (1, 2):
                        cluster.add_worker(threads)
                cluster.gate.open()
                assert client.wait() == 0, client.output()[-3000:]
        assert outcome(metrics) == expected
        assert [step[0] for step in outcome(metrics)["steps"]] == list(range(60)), "every step once, in order"


if __name__ == "__main__":
    main(globals())
