#!/usr/bin/env python3
"""Workers of one node that reduce among themselves by shared memory: the same bits as without, one gradient a node and
step at the servers, whoever comes, goes, freezes or dies."""
import itertools
import os
import re
import shutil
import signal
import subprocess

from gate import Gate
from harness import (Cluster, Folder, Process, Skip, assert_recovered, kept, main, newest_step, outcome, program,
                     simulated_gpus, wait_for, weir)

SIZES = (6, 8)  # microbatches of the runs
STEPS, LONG_STEPS = 10, 85
UNLOADED = re.compile(r"run_unloaded run=(\S+) .* gradients=(\d+) gradient_bytes=(\d+) weights=(\d+) ")


class Runs:
    """A folder with data, a model and specs, and what runs of them end with when nobody is in a group."""

    def __init__(self, *place):
        self.folder = Folder(*place)

    def __enter__(self):
        self.folder.__enter__()
        self.folder.small_data(480, 60)
        weir("model", "lenet", "--channels", "4,8", "--hidden", "200,60", "--batch-norm", "--seed", "3", "-o",
             self.folder.file("lenet.onnx"))
        return self

    def __exit__(self, *unused):
        self.folder.__exit__()

    def spec(self, microbatches, steps, collective="shm", workers=1, tail="", model="lenet.onnx"):
        """collective None: without the key."""
        path = self.folder.small_spec(model, microbatches, steps, 5)
        with open(path) as file:
            text = file.read()
        if collective:
            text = text.replace("train:\n", f"train:\n  collective: {collective}\n", 1)
        path = self.folder.file(f"{str(collective).split()[0]}-{microbatches}-{steps}-{workers}.yaml",
                                f"{text}workers: {{min: {workers}}}\n{tail}")
        return path

    def expected(self, microbatches, steps):
        def train():
            metrics = self.folder.file(f"calm-{microbatches}-{steps}.jsonl")
            weir("train", self.spec(microbatches, steps, "none"), "--workers", 1, "--threads", 2, "--out",
                 metrics + ".out", "--metrics", metrics)
            return outcome(metrics)
        return kept(f"groups-{microbatches}-{steps}", train)

    def follow(self, cluster, spec, name):
        """A client that follows a new run; (Process, metrics file)."""
        metrics = self.folder.file(f"{name}.jsonl")
        return Process(program("weir"), "submit", spec, "--follow", "--coordinator", cluster.address, "--metrics",
                       metrics), metrics


def finish(client):
    assert client.wait() == 0, client.output()[-2000:]


def groups_of(worker):
    """The sizes of the groups that a worker was in, as it says."""
    return [int(size) for size in re.findall(r" worker group .* size=(\d+) ", worker.output())]


def traffic(cluster, n=1):
    """Of the n-th run: gradients and weights, in blocks, and the gradients' bytes, of all servers together."""
    lines = [wait_for(lambda server=server: UNLOADED.findall(server.output())[n - 1:], "the servers' figures")[0]
             for server, _ in cluster.servers]
    return [sum(int(line[at]) for line in lines) for at in (1, 3, 2)]


def nobody_was_late(cluster):
    """Or a step took so long, as on a busy machine, that others computed parts of it, too, or somebody was missed for a while:
    there is nothing to count."""
    said = cluster.coordinator.output()
    return " coordinator late run=" not in said and " member_left " not in said


def model_blocks(cluster):
    return int(re.search(r"run_submitted .* parameters=(\d+) blocks=(\d+)", cluster.coordinator.output()).group(2)) - 1


def test_groups_of_any_shape_end_in_the_same_bits():
    shapes = [(2, 1, 1), (3, 2, 2), (5, 1, 1)]  # workers, servers, threads of each
    with Runs() as runs:
        for (workers, servers, threads), size in itertools.product(shapes, SIZES):
            with Cluster(runs.folder, servers, workers, threads, store=f"file://{runs.folder.file('s')}", is_patient=True) as cluster:
                name = f"{workers}-{servers}-{size}"
                client, metrics = runs.follow(cluster, runs.spec(size, STEPS, workers=workers), name)
                with client:
                    finish(client)
                assert outcome(metrics) == runs.expected(size, STEPS), name
                for worker in cluster.workers:
                    assert groups_of(worker) == [workers] or not nobody_was_late(cluster), worker.output()
            shutil.rmtree(runs.folder.file("s"))


def test_servers_get_one_gradient_a_node_and_step():
    """Of 8 microbatches, which halves of the workers sum to one part each."""
    with Runs() as runs:
        for nodes in (("a", "a"), ("a", "a", "a", "a"), ("a", "b", "a", "b")):
            with Cluster(runs.folder, servers=2, workers=0, store=f"file://{runs.folder.file('s')}", is_patient=True) as cluster:
                for node in nodes:
                    cluster.add_worker(node=node)
                seen = {}
                for n, collective in enumerate(("none", "shm"), 1):
                    spec = runs.spec(8, STEPS, collective, workers=len(nodes))
                    client, metrics = runs.follow(cluster, spec, f"{''.join(nodes)}-{collective}")
                    with client:
                        finish(client)
                    assert outcome(metrics) == runs.expected(8, STEPS)
                    seen[collective] = traffic(cluster, n)
                blocks, model_bytes = model_blocks(cluster), seen["none"][2] // STEPS // len(nodes)
                pulls = len(nodes) * blocks  # of version 0
                for collective, pushers in (("none", len(nodes)), ("shm", len(set(nodes)))):
                    parts = pushers * STEPS * blocks
                    expected = [parts, parts + pulls, pushers * STEPS * model_bytes]
                    assert seen[collective] == expected or not nobody_was_late(cluster), (nodes, seen)
            shutil.rmtree(runs.folder.file("s"))


def follow_at_gate(runs, cluster, collective, name, expected):
    """What a run comes to of which `weir status` says that while it trains: its line, and in JSON the collective and how many
    workers are in groups."""
    cluster.gate.stop_at(5)
    client, metrics = runs.follow(cluster, runs.spec(8, STEPS, collective, workers=2), name)
    with client:
        wait_for(lambda: newest_step(metrics) >= 2, "steps")
        run = cluster.json("runs")[-1]["run"]

        def says():
            info = cluster.json("status", run)
            text = weir("status", run, "--coordinator", cluster.address).stdout
            line = re.search(r"^collective +(.*)$", text, re.MULTILINE)
            return (line and line.group(1), info["collective"], info.get("grouped_workers", 0)) == expected
        wait_for(says, f"the status of {name} to say {expected}")
        cluster.gate.open()
        finish(client)
    return outcome(metrics)


def test_by_default_a_group_is_made_where_blocks_travel_by_socket():
    """As they do to a server on another host; this one was told to share no memory. The bits are those of no group."""
    with Runs() as runs:
        for number, (shm, default, says) in enumerate((("off", "shm", "shm (auto), 2 workers in groups"), ("on", "none", "none (auto)"))):
            with Cluster(runs.folder, servers=0, workers=0, gate=Gate(runs.folder), store=f"file://{runs.folder.file(shm)}",
                         is_patient=True) as cluster:
                cluster.add_server()
                cluster.add_server(env={**os.environ, "WEIR_SHM": shm})
                for _ in range(2):
                    cluster.add_worker()
                cluster.all_join()
                for name, collective, expected in (("default", None, (says, default, 2 * (default == "shm"))),
                                                   ("none", "none", ("none", "none", 0)),
                                                   ("named", "shm", ("shm, 2 workers in groups", "shm", 2))):
                    result = follow_at_gate(runs, cluster, collective, f"{name}-{number}", expected)
                    assert result == runs.expected(8, STEPS), (shm, name)


def test_a_group_of_the_default_ends_where_another_run_comes_to_its_worker():
    with Runs() as runs, Cluster(runs.folder, servers=0, workers=0, gate=Gate(runs.folder)) as cluster:
        cluster.add_server(env={**os.environ, "WEIR_SHM": "off"})
        for _ in range(2):
            cluster.add_worker(threads=2)
        cluster.all_join()
        cluster.gate.stop_at(10)
        first, metrics = runs.follow(cluster, runs.spec(8, LONG_STEPS, None, workers=2), "first")
        with first:
            wait_for(lambda: newest_step(metrics) >= 2, "steps")
            run = cluster.json("runs")[0]["run"]
            wait_for(lambda: cluster.json("status", run)["collective"] == "shm", "a group")
            second, other = runs.follow(cluster, runs.spec(8, LONG_STEPS, None, workers=1), "second")
            with second:
                wait_for(lambda: newest_step(other) >= 0, "a run beside it")
                wait_for(lambda: cluster.json("status", run)["collective"] == "none", "the group's end")
                cluster.gate.open()
                finish(second)
            finish(first)
        assert_recovered(metrics, runs.expected(8, LONG_STEPS))
        assert_recovered(other, runs.expected(8, LONG_STEPS))


def test_a_run_that_need_not_be_deterministic_has_the_collective_add():
    """Of 8 microbatches, 3 workers' are one part, which no worker's own are."""
    with Runs() as runs, Cluster(runs.folder, servers=1, workers=3, is_patient=True) as cluster:
        client, metrics = runs.follow(cluster, runs.spec(8, STEPS, "shm\n  deterministic: false", workers=3), "free")
        with client:
            finish(client)
        for step, expected in zip(outcome(metrics)["steps"], runs.expected(8, STEPS)["steps"], strict=True):
            assert abs(step[2] - expected[2]) < 1e-3, (step, expected)
        blocks = model_blocks(cluster)
        found = traffic(cluster)[:2]
        assert found == [STEPS * blocks, (STEPS + 3) * blocks] or not nobody_was_late(cluster), found


def test_workers_of_a_group_that_die_freeze_come_and_leave_change_no_bit():
    with Runs() as runs, Cluster(runs.folder, servers=1, workers=3, gate=Gate(runs.folder)) as cluster:
        expected = runs.expected(8, LONG_STEPS)
        cluster.gate.stop_at(10)
        client, metrics = runs.follow(cluster, runs.spec(8, LONG_STEPS, workers=3), "stirred")
        first, second, third = cluster.workers

        def after_steps(disturb):
            step = max(newest_step(metrics), 0) + 5
            cluster.gate.stop_at(step + 5)
            wait_for(lambda: newest_step(metrics) >= step, "steps")
            disturb()

        with client:
            after_steps(lambda: second.send(signal.SIGKILL))
            after_steps(lambda: cluster.add_worker(threads=2))
            after_steps(lambda: first.send(signal.SIGSTOP))
            late = cluster.add_worker()  # its group waits for the one that is frozen, until that is given up
            wait_for(lambda: groups_of(late), "a group without the frozen one")
            first.send(signal.SIGCONT)
            after_steps(lambda: third.send(signal.SIGTERM))
            after_steps(lambda: late.send(signal.SIGKILL))
            after_steps(lambda: cluster.add_worker(node="another"))
            cluster.gate.open()
            finish(client)
        assert_recovered(metrics, expected)


def test_a_group_outlives_its_server_and_its_coordinator():
    with Runs() as runs, Cluster(runs.folder, servers=2, workers=2, gate=Gate(runs.folder)) as cluster:
        expected = runs.expected(6, LONG_STEPS)
        cluster.gate.stop_at(25)
        spec = runs.spec(6, LONG_STEPS, workers=2, tail="checkpoint: {every_steps: 10}\n")
        client, metrics = runs.follow(cluster, spec, "servers")
        with client:
            wait_for(lambda: newest_step(metrics) >= 15, "steps")
            cluster.servers[0][0].send(signal.SIGKILL)
            cluster.servers[0][0].wait()
            cluster.restart_server(0)
            wait_for(lambda: any(groups_of(worker)[1:] for worker in cluster.workers), "another group")
            cluster.gate.stop_at(40)
            wait_for(lambda: newest_step(metrics) > 25, "steps")
            cluster.coordinator.send(signal.SIGKILL)
            cluster.coordinator.wait()
            cluster.start_coordinator()
            cluster.gate.open()
            finish(client)
        assert_recovered(metrics, expected)


def test_a_paused_run_goes_on_in_a_group():
    with Runs() as runs, Cluster(runs.folder, servers=1, workers=2, gate=Gate(runs.folder)) as cluster:
        expected = runs.expected(8, LONG_STEPS)
        cluster.gate.stop_at(20)
        client, metrics = runs.follow(cluster, runs.spec(8, LONG_STEPS, workers=2), "paused")
        at = ("--coordinator", cluster.address)
        with client:
            wait_for(lambda: newest_step(metrics) >= 10, "steps")
            run = cluster.json("runs")[0]["run"]
            weir("pause", run, *at)
            cluster.gate.crawl(lambda: cluster.json("status", run)["state"] == "paused", "the pause", steps=2)
            cluster.gate.open()
            weir("resume", run, *at)
            finish(client)
        assert_recovered(metrics, expected)
        assert [len(groups_of(worker)) for worker in cluster.workers] == [2, 2] or not nobody_was_late(cluster)


def test_workers_that_cannot_share_memory_go_on_alone():
    """As in containers, which have 64 MiB unless told otherwise; these have less than any group needs."""
    small = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"', "sh"]
    if os.geteuid() or subprocess.run([*small, "true"], capture_output=True).returncode:
        raise Skip("mounting needs root")
    with Runs("/tmp") as runs, Cluster(runs.folder, servers=1, workers=0, is_patient=True) as cluster:
        for _ in range(2):
            worker = Process(*small, program("weir-worker"), "--coordinator", cluster.address, "--threads", 1,
                             env={**os.environ, "WEIR_NODE": "small"})
            cluster.processes.append(worker)
            cluster.workers.append(worker)
        client, metrics = runs.follow(cluster, runs.spec(8, STEPS, workers=2), "small")
        with client:
            finish(client)
        assert outcome(metrics) == runs.expected(8, STEPS)
        failures = cluster.coordinator.output().count(" group_failed ")  # one if it was slow to make a second group
        assert failures >= 1 and (failures <= 2 or not nobody_was_late(cluster)), failures
        assert any("No space left" in worker.output() for worker in cluster.workers), cluster.workers[0].output()


def test_simulated_gpus_reduce_by_nccl_and_cpus_stay_outside():
    """tests/simulation/cuda in the place of the GPUs and of NCCL: what is ours is tried, not what is NVIDIA's."""
    environment = simulated_gpus()
    with Runs() as runs, Cluster(runs.folder, servers=1, workers=0, is_patient=True) as cluster:
        model = runs.folder.model("mlp", "--hidden", "120")  # a simulated GPU is slow
        for number in range(2):
            cluster.add_worker(options=("--device", f"cuda:{number}"), env=environment)
        hashes, gradients = [], []
        for n, collective in enumerate(("none", "nccl"), 1):
            spec = runs.spec(4, 6, collective, workers=2, model=model)
            client, metrics = runs.follow(cluster, spec, f"gpu-{collective}")
            with client:
                finish(client)
            hashes.append(outcome(metrics)["weights"])
            gradients.append(traffic(cluster, n)[0])
        assert hashes[0] == hashes[1], hashes
        assert gradients[0] == 2 * gradients[1] or not nobody_was_late(cluster), gradients
        assert [groups_of(worker) for worker in cluster.workers] == [[2], [2]] or not nobody_was_late(cluster)
        outsider = cluster.add_worker()
        spec = runs.spec(4, 6, "nccl\n  deterministic: false", workers=3, model=model)
        client, metrics = runs.follow(cluster, spec, "mixed")
        with client:
            finish(client)
        assert [groups_of(worker) for worker in cluster.workers[:2]] == [[2, 2], [2, 2]] or not nobody_was_late(cluster)
        assert groups_of(outsider) == [] and " joined run=" in outsider.output(), outsider.output()


def copied_up(worker):
    """Bytes that a simulated worker, which ends now, has copied from host memory to its devices."""
    worker.send(signal.SIGTERM)
    worker.wait()
    return int(re.search(r"simulated device: \d+ copies up of (\d+) bytes", worker.output()).group(1))


def test_weights_go_to_gpus_of_a_group_once():
    """Each from one member's host memory, however many members and devices there are; not from each one's."""
    environment = simulated_gpus(devices=4, tell=1)
    with Runs() as runs:
        model = runs.folder.model("mlp", "--hidden", "120")
        hashes, up = [], []
        for collective in ("none", "nccl"):
            with Folder() as folder, Cluster(folder, servers=1, workers=0, is_patient=True) as cluster:
                for devices in ("cuda:0,1", "cuda:2,3"):
                    cluster.add_worker(options=("--device", devices), env=environment)
                spec = runs.spec(4, 8, collective, workers=2, model=model)
                client, metrics = runs.follow(cluster, spec, f"twice-two-{collective}")
                with client:
                    finish(client)
                hashes.append(outcome(metrics))
                up.append(sum(copied_up(worker) for worker in cluster.workers))
        assert hashes[0] == hashes[1]
        assert up[1] < up[0] / 2, up


def test_gpus_of_a_group_that_die_and_come_change_no_bit():
    """Versions are read in host memory and on devices in turn."""
    environment = simulated_gpus(devices=4, tell=1)
    with Runs() as runs, Cluster(runs.folder, servers=1, workers=0, gate=Gate(runs.folder)) as cluster:
        model = runs.folder.model("mlp", "--hidden", "30")
        calm = runs.folder.file("calm-gpu.jsonl")
        weir("train", runs.spec(4, 30, "none", model=model), "--device", "cuda", "--out", calm + ".out", "--metrics",
             calm, env=environment)
        for number in range(3):
            cluster.add_worker(options=("--device", f"cuda:{number}"), env=environment)
        cluster.gate.stop_at(6)
        client, metrics = runs.follow(cluster, runs.spec(4, 30, "nccl", workers=3, model=model), "dying")
        with client:
            for victim in (0, 1):  # each has some of the weights to give
                step = max(newest_step(metrics), 0) + 4
                cluster.gate.stop_at(step + 4)
                wait_for(lambda step=step: newest_step(metrics) >= step, "steps")
                cluster.workers[victim].send(signal.SIGKILL)
                worker = cluster.add_worker(options=("--device", f"cuda:{victim}"), env=environment)
                wait_for(lambda worker=worker: groups_of(worker), "another group")
            cluster.gate.open()
            finish(client)
        assert_recovered(metrics, outcome(calm))


if __name__ == "__main__":
    main(globals())
