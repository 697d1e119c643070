"""A worker whose parts are finite and wrong is found out, named and kept away from work; the run ends in the bits of one
that nobody disturbed. A run that diverges is not mistaken for that."""
import json
import os
import signal

from gate import Gate
from harness import (PEER_PYTHON, Cluster, Folder, Process, Skip, assert_recovered, kept, main, newest_step, outcome, program,
                     wait_for, weir)

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, FEATURES, SAMPLES = 900, 1200, 480
LIES_MAX = 50  # it is found out by the first of them that a sum is made of
# The loss is a product with a weight for each feature, times a constant: that is what its gradient has, at every step.
MAKE_MODEL = """
import sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
folder, features, samples, weight, factor = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *map(float, sys.argv[4:])
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["sum"]), helper.make_node("Mul", ["sum", "factor"], ["loss"])], "g",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", features])],
    [helper.make_tensor_value_info("loss", TensorProto.FLOAT, ["N", 1])],
    [numpy_helper.from_array(np.full((features, 1), weight, np.float32), "w"),
     numpy_helper.from_array(np.array([factor], np.float32), "factor")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder + "/model.onnx")
np.save(folder + "/x.npy", np.random.default_rng(3).uniform(1.2, 1.6, (samples, features)).astype(np.float32))
"""


def peer(*arguments):
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    return Process(PEER_PYTHON, *arguments)


class Liar:
    """lying_worker.py on a host of its own."""

    def __init__(self, cluster, run, host="liars"):
        store = cluster.store.removeprefix("file://")
        self.process = peer(os.path.join(HERE, "lying_worker.py"), cluster.address, store, run, host)
        self.n_heard = 0

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.__exit__()

    def until(self, event):
        """Its next line of this kind, and the lines before."""
        def said():
            has_ended = self.process.child.poll() is not None
            whole = [line for line in self.process.output().splitlines(True) if line.startswith("{") and line.endswith("\n")]
            lines = [json.loads(line) for line in whole[self.n_heard:]]
            for n, line in enumerate(lines):
                if line["event"] == event:
                    return lines[:n + 1]
            assert not has_ended and len(lines) < LIES_MAX, f"the liar does not say {event}: {lines[-5:]}"
            return None

        heard = wait_for(said, f"the liar's {event}")
        self.n_heard += len(heard)
        return heard


def write_spec(folder, weight=1, factor=1e33, train=f"steps: {STEPS}, batch: 48, microbatches: 4", rate="1.0e-37"):
    """Sums of gradients with the largest finite number overflow; what the steps add to the weights is small."""
    with peer("-c", MAKE_MODEL, folder.path, FEATURES, SAMPLES, weight, factor) as maker:
        assert maker.wait() == 0, maker.output()
    return folder.file("spec.yaml", f"""name: linear
model: {{onnx: {folder.file("model.onnx")}, loss: loss, inputs: {{x: x}}}}
data: {{root: {folder.path}, train: {{format: npy, columns: {{x: x.npy}}}}}}
train: {{{train}, seed: 3, optimizer: {{name: sgd, lr: {rate}}}}}
""")


def undisturbed():
    def train():
        with Folder() as folder:
            weir("train", write_spec(folder), "--threads", 1, "--out", folder.file("out"))
            return outcome(folder.file("out/metrics.jsonl"))
    return kept("quarantine", train)


def rows(cluster):
    return {row["id"]: row for row in cluster.json("workers")}


def readmit(cluster, name, status=0):
    return weir("workers", "--readmit", name, "--coordinator", cluster.address, status=status)


def lie_until_unloaded(cluster, liar):
    """The run goes on, by so many steps at most, when the liar has a share of it. What the liar said."""
    wait_for(lambda: any(row["host"] == "liars" and row["state"] == "ready" for row in cluster.json("workers")),
             "the liar's share")
    cluster.gate.stop_at(cluster.gate.step + STEPS // 3)
    return liar.until("unloaded")


def assert_found_out(cluster, run, liar):
    wait_for(lambda: cluster.json("status", run)["step"] > cluster.gate.step, "the run's standing still")
    found = rows(cluster)
    assert found[liar]["state"] == "quarantined" and "in quarantine" in found[liar]["message"], found
    message = cluster.json("status", run)["message"]
    assert f"{liar} (liars, cpu) is in quarantine: run {run}, step " in message, message
    assert "microbatches 2 to 3, which it pushed, had other bits when worker-1 computed them" in message, message


def lie_twice(cluster, run):
    """The second time after it was readmitted. Returns the liar's id."""
    with Liar(cluster, run) as liar:
        said = lie_until_unloaded(cluster, liar)
        name = said[0]["id"]
        assert any(line["event"] == "lies" and line["accepted"] for line in said), said
        assert_found_out(cluster, run, name)
        assert "no worker or device 'worker-1' is in quarantine" in readmit(cluster, "worker-1", 2).stderr
        assert name in readmit(cluster, name).stdout
        said = lie_until_unloaded(cluster, liar)
        assert {"loads", "lies"} <= {line["event"] for line in said}, said
        assert_found_out(cluster, run, name)
    return name


def test_a_lying_worker_is_found_out_and_readmitted_and_the_run_ends_in_the_same_bits():
    expected = undisturbed()
    with Folder() as folder, Cluster(folder, servers=2, is_patient=True, gate=Gate(folder)) as cluster:
        metrics = folder.file("metrics.jsonl")
        cluster.gate.stop_at(3)
        with Process(program("weir"), "submit", write_spec(folder), "--follow", "--metrics", metrics, "--coordinator",
                     cluster.address) as client:
            wait_for(lambda: newest_step(metrics) >= 3, "the first steps")
            run = cluster.json("runs")[0]["run"]
            liar = lie_twice(cluster, run)
            cluster.gate.open()
            assert client.wait() == 0, client.output()[-3000:]
        assert_recovered(metrics, expected)
        # The liar has gone; its device is remembered, also by the coordinator that comes next.
        wait_for(lambda: rows(cluster)[liar]["message"].startswith("not connected"), "the liar's end")
        cluster.coordinator.send(signal.SIGKILL)
        cluster.coordinator.wait()
        cluster.start_coordinator()
        wait_for(lambda: "worker-1" in rows(cluster), "the honest worker's return")
        assert rows(cluster)[liar]["state"] == "quarantined", rows(cluster)
        with Liar(cluster, run) as again:
            name = again.until("joined")[0]["id"]
            assert rows(cluster)[name]["state"] == "quarantined", rows(cluster)
        assert "liars" in readmit(cluster, "liars/cpu").stdout
        wait_for(lambda: list(rows(cluster)) == ["worker-1"], "the end of the quarantine")


def test_a_run_whose_sums_overflow_whoever_computes_them_diverges_and_nobody_is_blamed():
    with Folder() as folder, Cluster(folder, workers=3) as cluster:
        spec = write_spec(folder, 1e-37, 3.3e38, "steps: 5, batch: 48, microbatches: 16")
        done = weir("submit", spec, "--follow", "--coordinator", cluster.address, status=1)
        run = cluster.json("runs")[0]
        assert "the sum of step 0's gradients of block" in run["message"], run
        assert "the training diverges; try a lower train.optimizer.lr" in run["message"], run
        assert "the training diverges" in done.stderr, done.stderr
        wait_for(lambda: [row["state"] for row in cluster.json("workers")] == ["idle"] * 3, "all workers, none of them in quarantine")


if __name__ == "__main__":
    main(globals())
