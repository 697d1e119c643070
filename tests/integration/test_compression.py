"""train.compression: gradients and weights that travel in fewer bytes are the same bits on every cluster, on both transports and
through kills; what travels is counted; who does not know a compressor is given no such run."""
import contextlib
import json
import os
import re

import test_modes
from gate import Gate
from harness import Cluster, Folder, assert_recovered, kept, main, outcome, read_metrics, wait_for, weir
from test_bad_input import refused
from test_shared_memory import UNLOADED as NAMED
from test_ssp import Run, kill

STEPS, CHECKPOINT, TRIES = 24, 8, 20
COMPRESSIONS = {"bf16": "{gradients: bf16, parts: 2}", "int8": "{gradients: int8, parts: 4}", "weights": "{weights: bf16}",
                "both": "{gradients: int8, parts: 2, weights: bf16}"}
SETTINGS = {name: (f"train.compression={value}",) for name, value in COMPRESSIONS.items()}
LARGEST = ("train.deterministic=false", "train.compression={gradients: top4, parts: 2}")  # no two runs of it are alike
MODEL = ("lenet", "--channels", "8,16", "--hidden", "400", "--batch-norm", "--dropout", "0.25", "--seed", "3")
TRAFFIC = re.compile(r"run_unloaded run=\S+ .*gradients=(\d+) gradient_bytes=(\d+) weights=(\d+) weight_bytes=(\d+) ")


@contextlib.contextmanager
def by_socket():
    os.environ["WEIR_SHM"] = "off"
    try:
        yield
    finally:
        del os.environ["WEIR_SHM"]


def write_spec(folder):
    folder.small_data(480, 24)
    return folder.small_spec(folder.model(*MODEL), 8, STEPS, STEPS)


def test_every_cluster_and_transport_makes_the_same_bits():
    shared = test_modes.assert_same_on_all({"none": (), **SETTINGS})
    with by_socket():
        sent = test_modes.assert_same_on_all(SETTINGS, clusters=((2, 3, 4), (2,)))
    assert sent == {name: shared[name] for name in SETTINGS}


def undisturbed(name):
    def train():
        with Folder() as folder:
            weir("train", write_spec(folder), *SETTINGS[name], "--threads", 1, "--out", folder.file("out"))
            return outcome(folder.file("out/metrics.jsonl"))
    return kept(f"compression-{name}", train)


def end_through_kills(cluster, run):
    """Of a run that stands at step 3."""
    run.wait_step(3)
    kill(cluster.workers[0])
    cluster.gate.stop_at(CHECKPOINT + 2)
    run.wait_step(CHECKPOINT + 2)
    kill(cluster.servers[1][0])
    cluster.restart_server(1)
    joiner = cluster.add_worker()
    wait_for(lambda: " joined run=" in joiner.output(), "another worker")
    run.end()


def test_workers_and_servers_that_are_killed_change_no_bit():
    for name in ("bf16", "int8", "both"):
        settings = SETTINGS[name]
        with Folder() as folder, Cluster(folder, servers=2, workers=3, is_patient=True, gate=Gate(folder)) as cluster:
            cluster.gate.stop_at(3)
            with Run(folder, cluster, write_spec(folder), *settings, f"checkpoint.every_steps={CHECKPOINT}") as run:
                end_through_kills(cluster, run)
            assert_recovered(run.metrics, undisturbed(name))


def test_the_largest_gradients_alone_train_whoever_is_killed():
    steps = 96
    with Folder() as folder, Cluster(folder, servers=2, workers=3, is_patient=True, gate=Gate(folder)) as cluster:
        folder.small_data(2400, 480)
        spec = folder.small_spec(folder.model("mlp", "--input", "1,28,28", "--hidden", "64", "--classes", "10"), 8, steps, steps)
        cluster.gate.stop_at(3)
        with Run(folder, cluster, spec, *LARGEST, "train.optimizer={name: sgd, lr: 0.3}", f"checkpoint.every_steps={CHECKPOINT}") as run:
            end_through_kills(cluster, run)
        evaluated = [event for event in read_metrics(run.metrics) if event["event"] == "eval"]
    assert evaluated[-1]["step"] == steps and evaluated[-1]["accuracy"] > 0.4, evaluated


def traffic(folder, *settings):
    """Parts of gradients, their bytes, versions of blocks and their bytes, of a run that one worker computes. On a machine that
    stands still meanwhile a step is late, and its microbatches are sent again: such a run counts for nothing."""
    for number in range(TRIES):
        with Cluster(folder, workers=1, is_patient=True, store=f"file://{folder.path}/store-{number}") as cluster:
            weir("submit", write_spec(folder), *settings, "--follow", "--coordinator", cluster.address)
            log = wait_for(lambda: "run_unloaded" in cluster.servers[0][0].output() and cluster.servers[0][0].output(), "the run's end")
            said = cluster.workers[0].output()
            if " reissue run=" not in said and said.count(" joined run=") == 1:
                return tuple(map(int, TRAFFIC.search(log).groups())), tuple(map(int, NAMED.search(log).groups()))
    raise AssertionError("a step was late in each run")


def test_what_travels_is_counted():
    with Folder() as folder:
        (parts, gradient_bytes, versions, weight_bytes), _ = traffic(folder)
        elems, blocks = gradient_bytes // (4 * STEPS), parts // STEPS
    with Folder() as folder:
        found, named = traffic(folder, "train.compression={gradients: bf16, parts: 1, weights: bf16}")
        assert found == (parts, gradient_bytes // 2, versions, weight_bytes // 2), found
        assert named[2] > 0 and named[3] > 0, "some of both in shared memory"
    with Folder() as folder:
        found, named = traffic(folder, "train.compression={gradients: int8, parts: 4}")
        least = 4 * STEPS * (elems + elems // 64)  # 2 bytes for 128 values, or for fewer at the end of a block
        assert found[0] == 4 * parts and (found[2], found[3]) == (versions, weight_bytes), found
        assert least <= found[1] <= least + 4 * STEPS * 2 * blocks, (found, elems, blocks)
        assert named[2] > 0, "some of them in shared memory"
    with Folder() as folder:
        found, _ = traffic(folder, *LARGEST)
        least = 2 * STEPS * elems * 3 * 4 // 128  # 3 bytes for each of 4 of 128 values, and for all of fewer than 4
        assert found[0] == 2 * parts and (found[2], found[3]) == (versions, weight_bytes), found
        assert least <= found[1] <= least + 2 * STEPS * 3 * 4 * blocks, (found, elems, blocks)


def test_a_spec_that_cannot_be_is_refused():
    with Folder() as folder:
        spec = write_spec(folder)
        refused("train", spec, "train.compression={gradients: int8}", words=("train.compression.parts", "must be given"))
        refused("train", spec, "train.compression={gradients: zip, parts: 2}", words=("'zip' is not known", "bf16, int8"))
        refused("train", spec, LARGEST[1], words=("top4 has each worker keep what it has not sent", "set train.deterministic to false"))
        refused("train", spec, "train.compression={gradients: int8, parts: 2}", "train.collective=shm",
                words=("train.compression", "set train.collective"))


if __name__ == "__main__":
    main(globals())
