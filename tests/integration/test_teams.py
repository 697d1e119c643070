"""Models cut into stages that are on different workers: no bit of the weights or of what is evaluated changes, however the
stages lie on workers and whichever of these dies or freezes."""
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess

from frozen_thread import FrozenThread
from gate import Gate
from harness import (PATIENCE, PEER_PYTHON, ROOT, Cluster, Folder, main, newest_step, outcome, own_address, read_metrics,
                     wait_for, weir)
from proxy import Proxy
from test_hang import Run as EndlessRun, losses, undisturbed
from test_pipeline import TRAIN, Runs
from test_recompute import graph_specs
from test_recovery import Run, kill
from tickets import peer_key_of, ticket_of

EVAL = "  eval:  {format: idx, images: t10k-images-idx3-ubyte.gz, labels: t10k-labels-idx1-ubyte.gz}\n"
LENET = ("lenet", "--channels", "8,16", "--hidden", "400", "--batch-norm", "--dropout", "0.25")


def held(output):
    """(first stage, blocks that it holds, blocks of the model) of what a worker has loaded last."""
    said = re.findall(r" worker loaded .* blocks=(\d+) .* held_blocks=(\d+) first_stage=(\d+)", output)[-1]
    return int(said[2]), int(said[1]), int(said[0])


def logs_of(runs):
    folder = os.path.join(runs.out, "logs")
    for name in sorted(os.listdir(folder)):
        if name.startswith("worker"):
            with open(os.path.join(folder, name)) as file:
                yield file.read()


def trained(runs, threads, **keys):
    """The outcome: what is said of each step, too, whose loss the last stage finds and the first one pushes."""
    runs.train(threads, **keys)
    return outcome(os.path.join(runs.out, "metrics.jsonl"))


def test_stages_on_several_workers_keep_every_bit():
    """Of a network with dropout and batch norm, whose statistics are in different stages; with evaluations."""
    with Folder() as folder:
        runs = Runs(folder, folder.spec(folder.model(*LENET), train=TRAIN, data=EVAL))
        whole = trained(runs, 1)
        assert whole["evals"] and len(whole["steps"]) > 1, whole
        assert trained(runs, 1, workers=2, stages=2) == whole, "a stage on each of two workers"
        loaded = [held(log) for log in logs_of(runs)]
        assert sorted(first for first, _, _ in loaded) == [0, 1], loaded
        assert any(some < blocks for _, some, blocks in loaded), f"all workers hold what other stages read: {loaded}"
        assert trained(runs, 1, workers=3, stages=3, cuts="[conv2, fc1]", recompute="full") == whole, "one on each of three"
        assert trained(runs, 2, workers=2, stages=4) == whole, "two stages on each of two"
        assert trained(runs, 2, workers=2, stages=3) == whole, "two stages on one, and the last on the other"
        assert trained(runs, 1, workers=5, stages=2) == whole, "two teams, and a worker to spare"


def test_skips_tied_weights_and_recurrence_keep_their_bits_across_workers():
    with Folder() as folder:
        for name, spec in graph_specs(folder):
            runs = Runs(folder, spec)
            places = runs.places()
            cuts = sorted(random.Random(name).sample(places, min(2, len(places))), key=places.index)
            whole, stages = runs.train(1), len(cuts) + 1
            assert runs.train(1, workers=2, stages=2) == whole, f"{name}: two workers change it"
            listed = "[" + ", ".join(f'"{cut}"' for cut in cuts) + "]"
            assert runs.train(1, workers=stages, stages=stages, cuts=listed) == whole, f"{name}: {cuts} change it"


def teams(cluster):
    """ids of the workers that compute."""
    return {row["id"] for row in cluster.json("workers") if row["microbatches"] > 0}


def row_of(cluster, worker):
    return next(row for row in cluster.json("workers") if row["pid"] == worker.child.pid)


def computes(cluster, worker, stage):
    return row_of(cluster, worker)["microbatches"] > 0 and held(worker.output())[0] == stage


def write_regression(folder):
    """Real labels, of 53 samples to evaluate: the last batch repeats its last sample, which takes an execution more."""
    draw = random.Random(3)
    for name, samples in (("train", 96), ("eval", 53)):
        rows = [",".join(f"{draw.uniform(-1, 1):.4f}" for _ in "abcdy") for _ in range(samples)]
        folder.file(f"{name}.csv", "\n".join(["a,b,c,d,y", *rows, ""]))
    source = '{{format: csv, file: {}.csv, columns: {{x: "a:d", y: y}}}}'
    model = folder.model("mlp", "--input", "4", "--hidden", "16x4", "--classes", "1")
    return folder.file("regression.yaml", f"""name: regression
model: {{onnx: {model}, loss: mse, inputs: {{image: x}}, labels: y}}
data:
  root: {folder.path}
  train: {source.format("train")}
  eval: {source.format("eval")}
train: {{steps: 6, batch: 24, microbatches: 4, optimizer: {{name: sgd, lr: 0.05}}}}
eval: {{every_steps: 2}}
""")


def test_an_evaluation_whose_last_batch_is_short_keeps_its_bits():
    with Folder() as folder:
        runs, outcomes = Runs(folder, write_regression(folder)), []
        for stages in range(1, 4):
            runs.start(1, {"stages": stages}, "--workers", stages)
            events = read_metrics(os.path.join(runs.out, "metrics.jsonl"))
            outcomes.append([[event.get(key) for key in ("event", "step", "loss", "weights_sha256")] for event in events])
        assert sum(event[0] == "eval" for event in outcomes[0]) == 3, outcomes[0]
        assert outcomes[1] == outcomes[0], "two stages change it"
        assert outcomes[2] == outcomes[0], "three stages change it"


def crawl(run, condition, what):
    """As run.crawl(), by one step at a time: however long it takes, the run is not over then."""
    return run.cluster.gate.crawl(run.before_its_end(condition, what), what, steps=1)


def stages_shown(cluster):
    """The numbers of the stages of each worker that has told how they compute."""
    return sorted([row["first_stage"] + s for s in range(len(row["stages"]))] for row in cluster.json("workers") if row["stages"])


def test_workers_of_a_team_die_freeze_and_are_replaced_without_a_bit_lost():
    """Two stages on workers of one executor each; a third worker is to spare and takes whichever stage is lost."""
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        first, second, third = (cluster.add_worker() for _ in range(3))
        cluster.all_join()
        with Run(folder, cluster, stop=10, more="workers: {stages: 2}\n") as run:
            run.wait_step(10)
            by_pid = {row["pid"]: row for row in cluster.json("workers")}
            lower, upper = sorted((worker for worker in (first, second, third)
                                   if by_pid[worker.child.pid]["microbatches"] > 0), key=lambda w: held(w.output())[0])
            spare, = {first, second, third} - {lower, upper}
            run.wait(lambda: " worker loaded " in spare.output(), "the spare worker's loading")
            images, aside = folder.file("train-images-idx3"), folder.file("aside")
            os.rename(images, aside)
            upper.send(signal.SIGKILL)
            run.go(30)
            run.wait_step(30)
            assert held(spare.output())[0] == 1, "the spare worker, which has read its data, has the stage of the one that died"
            os.rename(aside, images)
            upper, spare = spare, cluster.add_worker()
            crawl(run, lambda: " worker loaded " in spare.output(), "another spare worker's loading")
            lower.send(signal.SIGSTOP)
            crawl(run, lambda: len(cluster.json("workers")) == 2, "the frozen worker's being missed")
            run.go(newest_step(run.metrics) + 20)
            run.wait_step(run.cluster.gate.step)
            assert held(spare.output())[0] == 0, "the spare worker has the stage of the one that froze"
            lower.send(signal.SIGCONT)
            upper.send(signal.SIGSTOP)
            crawl(run, lambda: upper.child.pid not in {row["pid"] for row in cluster.json("workers")},
                  "the other one's being missed")
            upper.send(signal.SIGCONT)
            run.end()
            assert run.incarnation() == 0, "nothing was rolled back"


def test_a_worker_that_hangs_at_its_stage_is_found_and_its_stage_taken_over():
    """Its process goes on, and its heartbeats: it is busy, and completes nothing. The run is endless, so that the thread can
    be stopped in mid-run however fast the run is."""
    with Folder() as folder, Cluster(folder, workers=3, is_patient=True, gate=Gate(folder)) as cluster, \
            EndlessRun(folder, cluster, "workers: {stages: 2}\n") as run:
        cluster.gate.stop_at(1)
        run.wait_step(1)
        wait_for(lambda: all(" worker loaded " in worker.output() for worker in cluster.workers), "the spare worker's loading")
        cluster.gate.crawl(lambda: all(row_of(cluster, worker)["speed"] > 0 for worker in cluster.workers
                                       if row_of(cluster, worker)["microbatches"] > 0), "the speeds at which they usually compute")
        cluster.gate.open()
        upper = wait_for(lambda: next((worker for worker in cluster.workers if computes(cluster, worker, 1)), None),
                         "the worker of the second stage")
        with FrozenThread(upper.child.pid, "executor 0"):
            stage = held(upper.output())[0]
            wait_for(lambda: any(computes(cluster, worker, stage) for worker in cluster.workers if worker is not upper),
                     "another worker's having the stage of the one that hangs")
            run.wait_step(newest_step(run.metrics) + 30)
            message = row_of(cluster, upper)["message"]
            assert message.startswith("computes nothing: for ") and message in cluster.json("status", "small")["message"]
        steps = newest_step(run.metrics) + 20
        run.wait_step(steps)
        weir("cancel", "small", "--coordinator", cluster.address)
        assert run.client.wait() == 1, run.client.output()[-2000:]
        assert losses(run.metrics, steps) == undisturbed(folder, steps)
        assert all(worker.child.poll() is None for worker in cluster.workers)


def test_a_run_waits_for_the_stage_that_is_on_no_worker_and_says_so():
    with Folder() as folder, Cluster(folder, workers=1, is_patient=True, gate=Gate(folder)) as cluster, \
            Run(folder, cluster, stop=10, more="workers: {stages: 2}\n") as run:
        queued = "waiting for workers: 1 of 2; so many make a team of 2 stages"
        waits = "waiting for workers: no worker of 1 executor has stage 0: 2 such workers make a team of 2 stages"
        run.wait(lambda: "small-" in run.client.output(), "the run's id")
        run.wait(lambda: run.status()["message"] == queued, "what it waits for")
        second = cluster.add_worker()
        run.wait_step(10)
        cluster.workers[0].send(signal.SIGKILL)
        run.wait(lambda: run.status()["message"] == waits, "what it waits for")
        run.go()
        assert run.status()["state"] == "running" and newest_step(run.metrics) <= 10
        cluster.add_worker()
        run.end()
        assert run.incarnation() == 0 and second.child.poll() is None


def test_servers_and_the_coordinator_die_while_a_team_computes():
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        for _ in range(3):
            cluster.add_worker()
        with Run(folder, cluster, stop=20, more="workers: {stages: 3}\n") as run:
            run.wait_step(20)
            kill(cluster.servers[0][0])
            run.go(40)
            cluster.restart_server(0)
            run.wait_step(40, incarnation=1)
            kill(cluster.coordinator)
            cluster.start_coordinator()
            run.end()
            assert run.incarnation() == 1


def test_a_worker_that_does_not_reach_the_one_with_the_next_stage_is_named_while_that_is_so():
    with Folder() as folder, Cluster(folder, workers=1, is_patient=True, gate=Gate(folder)) as cluster, \
            contextlib.closing(Proxy()) as proxy:
        wait_for(lambda: len(cluster.json("workers")) == 1, "the worker that gets the first stage")
        lower, proxy.target = cluster.workers[0], own_address()
        upper = cluster.add_worker(options=("--listen", proxy.target, "--advertise", proxy.address))
        with Run(folder, cluster, stop=10, more="workers: {stages: 2}\n") as run:
            run.wait_step(10)
            assert held(upper.output())[0] == 1
            run.wait(lambda: run.status()["message"] == row_of(cluster, lower)["message"] == "", "no message")
            told = f"cannot reach {row_of(cluster, upper)['id']} ({proxy.address}), which has stage 1 of its team: "
            proxy.cut(lower)
            run.go(30)

            def is_named():
                row = row_of(cluster, lower)
                return (row["message"].startswith(told) and len(row["message"]) > len(told) and
                        run.status()["message"] == f"{row['id']} ({row['host']}) {row['message']}")
            run.wait(is_named, "word of the worker that is not reached")
            proxy.mend()
            run.wait_step(30)
            run.wait(lambda: run.status()["message"] == row_of(cluster, lower)["message"] == "", "the end of that message")
            run.end()
            assert run.incarnation() == 0, "nothing was rolled back"


def test_whole_workers_and_teams_compute_beside_each_other():
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        pair = [cluster.add_worker() for _ in range(2)]
        both = cluster.add_worker(threads=2)
        cluster.all_join()
        with Run(folder, cluster, stop=10, more="workers: {stages: 2}\n") as run:
            run.wait_step(10)
            crawl(run, lambda: len(teams(cluster)) == 3, "work for all")
            crawl(run, lambda: stages_shown(cluster) == [[0], [0, 1], [1]], "what each tells of its stages")
            pair[1].send(signal.SIGKILL)
            run.go(newest_step(run.metrics) + 20)
            run.wait_step(run.cluster.gate.step)
            cluster.add_worker()
            crawl(run, lambda: len(teams(cluster)) == 3, "work for the new team")
            both.send(signal.SIGKILL)
            run.end()


def test_garbage_at_a_worker_harms_nobody():
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        workers = [cluster.add_worker() for _ in range(2)]
        with Run(folder, cluster, stop=10, more="workers: {stages: 2}\n") as run:
            run.wait_step(10)
            addresses = [re.search(r" worker listening address=(\S+)", worker.output()).group(1) for worker in workers]
            for address in addresses:
                host, port = address.rsplit(":", 1)
                for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 64,
                                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(4096)):
                    with socket.create_connection((host, int(port))) as link:
                        link.sendall(garbage)
            if os.path.exists(PEER_PYTHON):
                peer = os.path.join(ROOT, "tests", "integration", "hostile_peer.py")
                name, store = run.status()["run"], cluster.store.removeprefix("file://")
                ticket = ticket_of(store, name, key=peer_key_of(store, name))
                done = subprocess.run([PEER_PYTHON, peer, name, ticket, *addresses], capture_output=True, text=True, timeout=PATIENCE,
                                      check=False)
                assert done.returncode == 0, done.stdout + done.stderr
                assert json.loads(done.stdout)["INVALID_ARGUMENT"] > 0, done.stdout
            run.end()
            assert all(worker.child.poll() is None for worker in workers)


if __name__ == "__main__":
    main(globals())
