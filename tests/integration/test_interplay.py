"""What people and members do while a run recovers: join, leave, pause, resume, cancel, and other runs beside it."""
import os
import re
import shlex
import signal
import subprocess

from gate import Gate
from harness import (PATIENCE, Cluster, Folder, Process, assert_recovered, main, newest_step, program, read_metrics,
                     wait_for, weir)
from redis_servers import Redis
from test_recovery import Run, gated, kill, parameter_servers, undisturbed, write_spec


def rolled_back(cluster, times=1):
    return cluster.coordinator.output().count(" roll_back ") >= times


def named_spec(folder, name, tail=""):
    with open(write_spec(folder)) as file:
        return folder.file(name + ".yaml", file.read().replace("name: small", f"name: {name}") + tail)


class Runs:
    """Several runs at a time, each followed by a client. stop: the step at which they stand still."""

    def __init__(self, folder, cluster, names, tail="", stop=None):
        at, self.gate = ("--coordinator", cluster.address), cluster.gate
        if stop is not None:
            self.gate.stop_at(stop)
        specs = [named_spec(folder, name, tail) for name in names]
        ids = [weir("submit", spec, *at).stdout.strip() for spec in specs]
        self.metrics = [folder.file(run + ".jsonl") for run in ids]
        self.clients = [Process(program("weir"), "watch", run, "--metrics", metrics, *at)
                        for run, metrics in zip(ids, self.metrics)]
        wait_for(lambda: all(run in client.output() for run, client in zip(ids, self.clients)),
                 "the clients' first words: from then on they outlast a coordinator")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for client in self.clients:
            client.__exit__()

    def end(self):
        self.gate.open()
        for client, metrics in zip(self.clients, self.metrics):
            assert client.wait() == 0, client.output()[-2000:]
            assert_recovered(metrics, undisturbed())


def test_workers_join_while_a_run_rolls_back():
    with gated(servers=2, workers=1, stop=30) as (cluster, run):
        with run.held():
            kill(cluster.servers[0][0])
            cluster.add_worker()
            cluster.restart_server(0)
            run.wait(lambda: rolled_back(cluster), "the roll-back")
            cluster.add_worker(threads=2)
            run.wait(lambda: [row["state"] for row in cluster.json("workers")] == 3 * ["ready"], "both newcomers")
        run.end()
        assert max(event["workers"] for event in run.steps()) > 1


def test_a_run_rolls_back_without_workers_and_waits_for_one():
    with gated(servers=2, workers=2, stop=60) as (cluster, run):
        run.wait_step(30)
        kill(cluster.servers[0][0], *cluster.workers)
        run.go()
        cluster.restart_server(0)
        run.wait(lambda: "waiting for workers: 0 of 1" in run.status()["message"] and rolled_back(cluster), "its message")
        cluster.add_worker()
        run.end()


def test_a_server_that_came_late_takes_part_after_the_next_roll_back():
    with gated(servers=2, workers=1, stop=30) as (cluster, run):
        def take_part():
            return sorted(server["blocks"] > 0 for server in cluster.json("servers"))

        def late_takes_part():
            return [server["blocks"] > 0 for server in cluster.json("servers") if server["address"] == cluster.servers[0][1]]
        run.wait_step(20)
        kill(cluster.servers[0][0])
        run.go(then=40)
        with run.held(then=50):
            cluster.restart_server(0)
            wait_for(lambda: take_part() == [False, True], "the server that is not needed yet")
            kill(cluster.servers[1][0])
            cluster.restart_server(1)
        with run.held():
            assert late_takes_part() == [True], cluster.json("servers")  # with the other, or without if that is not back in time
        run.end()


def test_a_run_is_paused_resumed_and_cancelled_while_its_servers_are_away():
    with gated(servers=2, workers=2, stop=30) as (cluster, run):
        at, again = ("--coordinator", cluster.address), cluster.folder.file("again.jsonl")
        with run.held():
            run.wait_checkpoint(10)
            kill(*[server for server, _ in cluster.servers])
            weir("pause", "small", *at)
            run.wait(lambda: run.status()["state"] == "paused", "the pause")
            first = cluster.json("checkpoints", "small")[0]["step"]
            weir("resume", "small", "--step", first, *at)
            cluster.restart_server(0)
            run.wait_step(first, incarnation=1)
            kill(cluster.servers[0][0])
            run.wait(lambda: "waiting for a server" in run.status()["message"], "its message")
            weir("cancel", "small", *at)
            assert run.client.wait() == 1, run.client.output()[-2000:]
        cluster.restart_server(0)
        weir("resume", "small", *at)
        weir("watch", "small", "--metrics", again, *at)
        assert_recovered(again, undisturbed())


def test_a_training_is_interrupted_while_its_servers_are_started_again():
    with Folder() as folder:
        gate, out = Gate(folder), folder.file("out")
        metrics = os.path.join(out, "metrics.jsonl")
        gate.stop_at(60)
        with Process(program("weir"), "train", write_spec(folder), "--workers", 2, "--servers", 2, "--threads", 1,
                     "--out", out, env=gate.environment) as training:
            wait_for(lambda: newest_step(metrics) >= 30, "step 30")
            for pid in parameter_servers(training):
                os.kill(pid, signal.SIGKILL)
            training.send(signal.SIGINT)
            gate.crawl(lambda: training.child.poll() is not None, "the end of the interrupted training", steps=2)  # not the run's
            assert training.wait() == 130, training.output()[-3000:]
            command = shlex.split(re.search(r"to resume: (.*)", training.output()).group(1))
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 3)
        assert done.returncode == 0, done.stdout + done.stderr
        assert_recovered(metrics, undisturbed())


def test_queued_runs_outlive_the_coordinator():
    with Folder() as folder, Cluster(folder, servers=2, workers=2, gate=Gate(folder)) as cluster, \
            Runs(folder, cluster, ("first",), "workers: {min: 2}\n", stop=30) as first:
        wait_for(lambda: newest_step(first.metrics[0]) >= 30, "steps")  # it stands: its turn does not end
        with Runs(folder, cluster, ("second",), "workers: {min: 2}\n") as second:
            assert {entry["name"]: entry["state"] for entry in cluster.json("runs")}["second"] == "queued"
            kill(cluster.coordinator)
            cluster.start_coordinator()
            first.end()
            second.end()


def test_two_runs_lose_the_same_server():
    with Folder() as folder, Cluster(folder, servers=2, workers=0, gate=Gate(folder)) as cluster, \
            Runs(folder, cluster, ("first", "second"), "workers: {min: 1, max: 1}\n", stop=60) as runs:
        for _ in range(2):  # now that both wait for one
            cluster.add_worker()
        wait_for(lambda: min(map(newest_step, runs.metrics)) >= 20, "steps")
        kill(cluster.servers[0][0])
        cluster.restart_server(0)
        runs.end()
        assert all(any("incarnation" in event for event in read_metrics(metrics)) for metrics in runs.metrics)


def test_a_cluster_whose_store_was_emptied_while_nobody_led_takes_new_runs():
    with Folder() as folder, Redis(folder, appendonly="yes") as redis, \
            Cluster(folder, workers=1, store=f"redis://{redis.address}", gate=Gate(folder)) as cluster, \
            Run(folder, cluster, stop=10) as lost:
        for step in (20, 30, 40):
            with lost.held(then=step):
                kill(cluster.coordinator)
                cluster.start_coordinator()
        lost.wait_step(40)
        wait_for(lambda: cluster.json("servers") and cluster.json("workers"), "members that know the higher term")
        kill(cluster.coordinator)
        redis.local("FLUSHALL")
        cluster.start_coordinator()
        assert cluster.coordinator.wait() == 1, "members remember another"
        assert "term_raised" in cluster.coordinator.output()
        cluster.start_coordinator()
        assert lost.client.wait() == 2, lost.client.output()[-2000:]
        with Runs(folder, cluster, ("next",)) as runs:
            runs.end()


if __name__ == "__main__":
    main(globals())
