#!/usr/bin/env python3
"""A worker whose device computes wrongly: what it pushes is finite, and of all blocks or of one it overflows with what others
push. It is found and named, no honest worker is, and the run ends in the bits of one that nobody disturbed."""
import os
import re
import subprocess

from gate import Gate
from harness import Cluster, Folder, Process, Skip, kept, main, outcome, program, read_metrics, weir, wait_for

STEPS, EVERY, MICROBATCHES, FROM = 60, 20, 9, 2
# Without batch norm: its rows are as large as gradients, and nothing is compared there.
MODEL = ("lenet", "--channels", "4,8", "--hidden", "400", "--seed", "3")


def write_spec(folder):
    """The run begins with three workers. Each has three microbatches, whose sums are two tree nodes: so two wrong ones
    meet, wherever they lie."""
    folder.small_data(960, 24)
    path = folder.small_spec(folder.model(*MODEL), MICROBATCHES, STEPS, EVERY)
    with open(path) as file:
        return folder.file("spec.yaml", file.read() + "workers: {min: 3}\n")


def undisturbed():
    def train():
        with Folder() as folder:
            weir("train", write_spec(folder), "--workers", 3, "--threads", 1, "--out", folder.file("out"))
            return outcome(folder.file("out/metrics.jsonl"))
    return kept("lying", train)


def add_worker_of(cluster, host, preload="", **environment):
    """A worker on a machine of that name: workers of one host share their device. preload: a library, beside the gate's."""
    environment = {**cluster.gate.variables, **environment}
    environment["LD_PRELOAD"] += preload and ":" + preload
    worker = Process("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, program("weir-worker"),
                     "--coordinator", cluster.address, "--threads", 1, env={**os.environ, **environment})
    cluster.processes.append(worker)
    cluster.workers.append(worker)


def workers_by_host(cluster):
    return {worker["host"]: worker for worker in cluster.json("workers")}


def settled(metrics):
    """The outcome where of steps that were made again what was said last counts: with a wrong part they may have been made."""
    last = outcome(metrics)
    for kind in ("steps", "evals"):
        last[kind] = sorted({line[0]: line for line in last[kind]}.values())
    return last


def check_liar(**lies):
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode:
        raise Skip("unshare --uts is not permitted")
    expected = undisturbed()
    with Folder() as folder, Cluster(folder, servers=2, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        add_worker_of(cluster, "honest-1")
        add_worker_of(cluster, "liar", program("tests/chaos/lying_worker.so"), WEIR_LIE_FROM=str(FROM), WEIR_SHM="off",
                      **lies)
        add_worker_of(cluster, "honest-2")
        wait_for(lambda: len(workers_by_host(cluster)) == 3, "three workers")
        metrics = folder.file("metrics.jsonl")
        cluster.gate.stop_at(STEPS // 2)
        with Process(program("weir"), "submit", write_spec(folder), "--follow", "--metrics", metrics, "--coordinator",
                     cluster.address) as client:
            liar = cluster.gate.crawl(lambda: [worker for worker in cluster.json("workers") if worker["state"] == "quarantined"],
                                      "a quarantine", steps=2)[0]
            step = int(re.search(r"\bstep (\d+)", liar["message"]).group(1))
            # Of a step that is late others may have computed its part before.
            assert liar["host"] == "liar" and FROM <= step <= cluster.gate.step, liar
            run = cluster.json("runs")[0]["run"]
            assert "(liar, cpu) is in quarantine" in cluster.json("status", run)["message"], cluster.json("status", run)
            add_worker_of(cluster, "honest-3")
            cluster.gate.open()
            assert client.wait() == 0, client.output()[-2000:]
        assert settled(metrics) == expected
        assert max(event.get("incarnation", 0) for event in read_metrics(metrics)) == 1, "the run has not rolled back once"
        def states():
            return {host: worker["state"] for host, worker in workers_by_host(cluster).items()}
        wait_for(lambda: states() == {"liar": "quarantined", **{f"honest-{n}": "idle" for n in (1, 2, 3)}}, "all at rest")
        weir("workers", "--readmit", liar["id"], "--coordinator", cluster.address)
        wait_for(lambda: states().get("liar") == "idle", "the worker's return")


def test_a_worker_that_pushes_wrong_parts_is_put_into_quarantine_and_the_bits_are_the_same():
    check_liar()


def test_what_it_has_pushed_beside_that_and_no_sum_shows_is_not_kept():
    check_liar(WEIR_LIE_LOUD="1")


if __name__ == "__main__":
    main(globals())
