"""Mode local: replicas take steps of their own, and which workers compute them does not change one bit. That the steps
are DiLoCo's is shown by test_parity.py."""
import json
import os
import re
import signal

import ledger
from gate import Gate
from harness import (Cluster, Folder, Process, children_of, done_event, kept, main, newest_step, program, read_metrics,
                     simulated_gpus, wait_for, weir)
from test_parity import read_tensors
from test_ssp import Run, kill

STEPS, INNER = 20, 6  # the last round has two steps
TRIES = 20
LOCAL = ("train.mode=local", "train.local.replicas=2", f"train.local.inner_steps={INNER}")
ROUNDS = -(-STEPS // INNER)
UNLOADED = re.compile(r"run_unloaded run=\S+ .* gradient_bytes=(\d+) weights=\d+ weight_bytes=(\d+) ")
MODEL = ("lenet", "--channels", "4,8", "--batch-norm", "--dropout", "0.25", "--seed", "3", "--hidden", "64")


def write_spec(folder):
    folder.small_data(480, 12)
    return folder.small_spec(folder.model(*MODEL), 8, STEPS, INNER)


def options_of(replicas):
    return ("train.mode=local", f"train.local.replicas={replicas}", f"train.local.inner_steps={INNER}")


def train(folder, spec, workers, servers, threads, replicas=2):
    name = f"{replicas}-{workers}-{servers}-{threads}"
    metrics = folder.file(name + ".jsonl")
    weir("train", spec, "--workers", workers, "--servers", servers, "--threads", threads, "--out", folder.file(name),
         "--metrics", metrics, *options_of(replicas))
    return read_metrics(metrics)


def command_line(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().split("\0")


def calm(folder, spec):
    return kept("local-2", lambda: train(folder, spec, 1, 1, 2)[-1]["weights_sha256"])


def test_any_cluster_ends_in_the_same_weights_whether_it_has_more_workers_than_replicas_or_fewer():
    with Folder() as folder:
        spec = write_spec(folder)
        hashes = {}
        for replicas, clusters in ((1, ((1, 1, 1), (2, 2, 2))), (2, ((1, 2, 1), (2, 1, 2), (3, 1, 1))), (4, ((2, 2, 1),))):
            found = {cluster: train(folder, spec, *cluster, replicas=replicas)[-1]["weights_sha256"]
                     for cluster in clusters}
            assert len(set(found.values())) == 1, f"{replicas} replicas: {found}"
            hashes[replicas] = next(iter(found.values()))
        assert len(set(hashes.values())) == 3, "other replicas are another run"
        assert calm(folder, spec) == hashes[2]


def test_metrics_count_steps_and_versions_are_evaluated_where_there_are_some():
    with Folder() as folder:
        events = train(folder, write_spec(folder), 2, 1, 1)
        steps = [event for event in events if event["event"] == "step"]
        assert [event["step"] for event in steps] == list(range(STEPS))
        assert all(event["samples"] == 96 and event["loss"] > 0 and event["lr"] == 0.05 for event in steps)
        assert [event["step"] for event in events if event["event"] == "eval"] == [6, 12, 18, 20]
        assert events[-1]["steps"] == STEPS


def traffic(folder, spec, *settings):
    """Bytes of gradients and of weights of a run that one worker computes. On a machine that stands still meanwhile a step is
    late, and some are sent again: such a run counts for nothing."""
    for number in range(TRIES):
        with Cluster(folder, workers=1, is_patient=True, store=f"file://{folder.path}/store-{number}") as cluster:
            weir("submit", spec, *settings, "--follow", "--coordinator", cluster.address)
            found = wait_for(lambda: UNLOADED.search(cluster.servers[0][0].output()), "the run's end").groups()
            said = cluster.workers[0].output()
            if " reissue run=" not in said and said.count(" joined run=") == 1:
                return tuple(map(int, found))
    raise AssertionError("a step was late in each run")


def test_weights_travel_once_a_round():
    with Folder() as folder, Folder() as other:
        came, went = traffic(folder, write_spec(folder))
        local = traffic(other, write_spec(other), *options_of(1))
        assert local == (came * ROUNDS // STEPS, went * (ROUNDS + 1) // (STEPS + 1)), "each version goes to the worker once"
    with Folder() as folder:
        handed_on = traffic(folder, write_spec(folder), *options_of(1), "train.local.inner_state=kept")
        assert handed_on == tuple(2 * amount for amount in local), "SGD with momentum keeps a value of each weight"


def test_workers_beyond_the_replicas_stand_by():
    with Folder() as folder:
        spec, gate = write_spec(folder), Gate(folder)
        gate.stop_at(INNER)
        with Cluster(folder, workers=3, gate=gate) as cluster:
            run = weir("submit", spec, *LOCAL, "workers.min=3", "--coordinator", cluster.address).stdout.strip()
            wait_for(lambda: "1 of the 3 workers stand by" in weir("status", run, "--coordinator", cluster.address).stdout,
                     "the note")
            gate.open()
            weir("watch", run, "--coordinator", cluster.address)


def test_a_replica_whose_worker_is_killed_is_computed_anew_with_the_same_bits():
    with Folder() as folder:
        spec = write_spec(folder)
        wanted = calm(folder, spec)
        gate, metrics = Gate(folder), folder.file("stormy.jsonl")
        gate.stop_at(INNER - 1)
        with Process(program("weir"), "train", spec, "--workers", 2, "--servers", 2, "--threads", 1, "--no-restart",
                     "--out", folder.file("stormy"), "--metrics", metrics, *LOCAL, env=gate.environment) as training:
            wait_for(lambda: newest_step(metrics) >= INNER - 1, "the first version")
            address = next(word for word in training.output().split() if word.startswith("127.0.0.1:")).rstrip(".,")

            def ready():
                workers = json.loads(weir("workers", "--coordinator", address, "--json").stdout)
                return [worker["pid"] for worker in workers if worker["state"] == "ready"]
            os.kill(wait_for(lambda: len(ready()) == 2 and ready(), "two workers")[0], signal.SIGKILL)
            gate.open()
            assert training.wait() == 0, training.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == wanted


def test_a_server_that_is_killed_takes_the_run_back_to_a_version_and_changes_nothing():
    with Folder() as folder:
        spec = write_spec(folder)
        wanted = calm(folder, spec)
        gate, metrics = Gate(folder), folder.file("stormy.jsonl")
        gate.stop_at(2 * INNER)
        with Process(program("weir"), "train", spec, "--workers", 2, "--servers", 2, "--threads", 1, "--out",
                     folder.file("stormy"), "--metrics", metrics, *LOCAL, f"checkpoint.every_steps={INNER}",
                     env=gate.environment) as training:
            wait_for(lambda: newest_step(metrics) >= 2 * INNER, "the second version")
            servers = children_of(training.child.pid, "weir-server")
            os.kill(next(pid for pid in servers if "--role=parameters" in command_line(pid)), signal.SIGKILL)
            gate.open()
            assert training.wait() == 0, training.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == wanted
        again = [event["step"] for event in read_metrics(metrics) if event["event"] == "step" and event.get("incarnation")]
        assert again and again[0] % INNER == 0, "it went on from a version"


def test_every_sample_counts_once_an_epoch_through_kills_of_everything():
    """A sample adds 1 to its row of its replica by each mean over the replica's samples, R times the share of the whole
    batch, and the outer step is the mean of R replicas, so the rate is the batch in this mode, too."""
    rows, epochs, inner = 256, 6, 7  # 48 steps: the last round has six
    train = f"  mode: local\n  local: {{replicas: 2, inner_steps: {inner}, outer: {{lr: 1, momentum: 0, nesterov: false}}}}\n"
    with Folder() as folder, Cluster(folder, servers=2, workers=2, gate=Gate(folder)) as cluster:
        spec = ledger.spec(folder, rows, epochs, 32, 4, train, f"checkpoint: {{every_steps: {inner}}}\n")
        cluster.gate.stop_at(0)
        with Run(folder, cluster, spec) as run:
            run.wait_checkpoint(inner)
            cluster.gate.stop_at(2 * inner)
            run.wait_step(3 * inner - 1)
            kill(cluster.workers[1], cluster.servers[0][0])  # the server that remains takes its blocks
            cluster.add_worker()
            cluster.gate.stop_at(3 * inner)
            run.wait_step(4 * inner - 1, incarnation=1)
            kill(cluster.coordinator, cluster.servers[1][0], *cluster.workers)
            cluster.start_coordinator()
            cluster.restart_server(1)
            cluster.add_worker()
            run.end()
        weir("export", run.name, "-o", folder.file("ledger.safetensors"), "--coordinator", cluster.address)
        counted = read_tensors(folder.file("ledger.safetensors"))
        assert {name: set(counts) for name, counts in counted.items()} == {name: {float(epochs)} for name in ledger.TABLES}


KEPT = (*LOCAL, "train.local.inner_state=kept", "train.optimizer={name: adamw, lr: 0.003}")


def calm_kept(folder, spec):
    def train_calmly():
        weir("train", spec, "--threads", 2, "--out", folder.file("kept"), *KEPT)
        return done_event(folder.file("kept/metrics.jsonl"))["weights_sha256"]
    return kept("local-kept", train_calmly)


def test_what_optimizers_keep_of_replicas_is_handed_on_through_roll_backs_and_kills_of_everything():
    with Folder() as folder:
        spec = write_spec(folder)
        wanted = calm_kept(folder, spec)
        assert wanted != calm(folder, spec)
        with Cluster(folder, servers=2, workers=2, gate=Gate(folder)) as cluster:
            cluster.gate.stop_at(0)
            with Run(folder, cluster, spec, *KEPT, f"checkpoint.every_steps={INNER}") as run:
                run.wait_checkpoint(INNER)
                cluster.gate.stop_at(INNER)
                run.wait_step(2 * INNER - 1)
                kill(cluster.servers[0][0], cluster.workers[0])  # back to a checkpoint, by the server that remains
                cluster.add_worker()
                cluster.gate.stop_at(2 * INNER)
                run.wait_step(3 * INNER - 1, incarnation=1)
                kill(cluster.coordinator, cluster.servers[1][0], *cluster.workers)
                cluster.start_coordinator()
                cluster.restart_server(1)
                cluster.add_worker()
                run.end()
            assert done_event(run.metrics)["weights_sha256"] == wanted
            weir("verify", run.name, "--coordinator", cluster.address)


def test_what_optimizers_keep_of_replicas_goes_with_holds_and_forks():
    with Folder() as folder, Cluster(folder, workers=2) as cluster:
        spec = write_spec(folder)
        wanted = calm_kept(folder, spec)

        def ask(*command, **options):
            return weir(*command, "--coordinator", cluster.address, **options)

        def hash_of(run):
            ask("watch", run)
            return cluster.json("status", run)["weights_sha256"]
        run = ask("submit", spec, *KEPT, f"train.hold={2 * INNER}").stdout.strip()
        wait_for(lambda: cluster.json("status", run)["state"] == "held", "the hold")
        said = ask("fork", f"{run}@{2 * INNER}", "train.optimizer.name=sgd", status=2).stderr
        assert "train.optimizer: with train.local.inner_state kept" in said, said
        fork = ask("fork", f"{run}@{2 * INNER}", f"train.hold={STEPS}").stdout.strip()
        ask("set", run, f"train.hold={STEPS}")
        assert hash_of(fork) == hash_of(run) == wanted
        again = ask("fork", f"{run}@{2 * INNER}", f"train.hold={STEPS}").stdout.strip()  # from the store
        assert hash_of(again) == wanted
        begun_anew = ask("submit", spec, *KEPT, "--from", f"{run}@{2 * INNER}").stdout.strip()
        assert hash_of(begun_anew) != wanted


def test_what_the_mode_takes_is_said():
    with Folder() as folder, Cluster(folder) as cluster:
        def line_of(*command):
            return next(line.split() for line in weir(*command).stdout.splitlines() if line.startswith("mode "))
        for settings, words in ((LOCAL, ("3 versions on each worker", "train.optimizer keeps on each worker (56.4",
                                         "train.local.outer keeps on the servers (56.4")),
                                (KEPT, ("(112.9", "on the servers (225.", "on each worker (338.", "beside the weights' 56.4"))):
            shown = line_of("inspect", write_spec(folder), *settings)
            assert shown[1:3] == ["local,", "2"] and all(word in " ".join(shown) for word in words), shown
            run = weir("submit", write_spec(folder), *settings, "--coordinator", cluster.address).stdout.strip()
            assert line_of("status", run, "--coordinator", cluster.address) == shown
            weir("cancel", run, "--coordinator", cluster.address)


def test_a_run_is_held_forked_and_paused_at_versions_that_there_are():
    with Folder() as folder:
        spec, gate = write_spec(folder), Gate(folder)
        wanted = calm(folder, spec)
        with Cluster(folder, workers=2, gate=gate) as cluster:
            def ask(*command, **options):
                return weir(*command, "--coordinator", cluster.address, **options)

            def hash_of(run):
                ask("watch", run)
                return cluster.json("status", run)["weights_sha256"]
            run = ask("submit", spec, *LOCAL, f"train.hold={2 * INNER}").stdout.strip()
            wait_for(lambda: cluster.json("status", run)["state"] == "held", "the hold")
            assert "name 12 or 18" in ask("set", run, "train.hold=13", status=2).stderr
            assert "has no checkpoint at step 7" in ask("fork", f"{run}@7", status=2).stderr
            fork = ask("fork", f"{run}@{2 * INNER}", f"train.hold={STEPS}").stdout.strip()
            ask("set", run, f"train.hold={STEPS}")
            assert hash_of(fork) == hash_of(run) == wanted
            gate.stop_at(INNER)
            run = ask("submit", spec, *LOCAL, "train.steps=90").stdout.strip()
            wait_for(lambda: cluster.json("status", run)["step"] >= INNER, "the first version")
            ask("pause", run)
            gate.crawl(lambda: cluster.json("status", run)["state"] == "paused", "the pause", steps=INNER)
            assert cluster.json("status", run)["step"] % INNER == 0
            gate.open()
            ask("resume", run)
            assert hash_of(run)


def test_on_a_gpu_each_inner_step_reads_what_the_one_before_made():
    environment = simulated_gpus(seed=7)
    with Folder() as folder:
        spec = write_spec(folder)
        losses = []
        for device in ("cpu", "cuda:0"):
            metrics = folder.file(f"{device}.jsonl")
            weir("train", spec, "--device", device, "--out", folder.file(device), "--metrics", metrics, *LOCAL,
                 "train.steps=8", "eval=null", env=environment)
            losses.append([event["loss"] for event in read_metrics(metrics) if event["event"] == "step"])
        assert len(losses[0]) == 8 and all(abs(a - b) < 1e-3 * a for a, b in zip(*losses)), losses


def test_what_local_steps_do_not_go_with_is_refused_by_name():
    with Folder() as folder:
        spec = write_spec(folder)
        for settings, words in (
                (("train.mode=local",), "train.local: is missing"),
                ((*LOCAL, "train.mode=sync"), "train.local: is of train.mode local"),
                ((*LOCAL, "train.local.replicas=3"), "train.local.replicas: 3 replicas of train.microbatches 8"),
                ((*LOCAL, "train.local.replicas=0"), "train.local.replicas: must be given"),
                ((*LOCAL, "train.local.inner_state=lost"), "train.local.inner_state: 'lost' is not known (known: reset, kept)"),
                ((*LOCAL, "train.local.outer={name: lamb}"), "train.local.outer.name"),
                ((*LOCAL, "train.optimizer.name=lars"), "train.optimizer"),
                ((*LOCAL, "train.collective=shm"), "train.collective: mode local"),
                ((*LOCAL, "workers.stages=2"), "workers.stages: mode local"),
                ((*LOCAL, "train.average={decay: 0.9}"), "train.average: mode local"),
                ((*LOCAL, "eval.every_steps=7"), "eval.every_steps: 7 is no multiple of train.local.inner_steps: take 6 or 12"),
                ((*LOCAL, "checkpoint.every_steps=4"), "checkpoint.every_steps: 4"),
                ((*LOCAL, "train.hold=7"), "train.hold: there will be no version 7"),
                ((*LOCAL, "eval.at=[8]"), "eval.at")):
            said = weir("submit", spec, *settings, "--coordinator", "127.0.0.1:1", status=2).stderr
            assert words in said, (settings, said)


if __name__ == "__main__":
    main(globals())
