"""Who leads: a standby takes over from a coordinator that died or froze and the run goes on as if nothing had
happened, one that was replaced ends itself, and a store that is away, wrong or protected is said to be so."""
import os
import re
import signal
import subprocess
import time

from gate import Gate
from harness import (PATIENCE, Cluster, Folder, Process, children_of, kept, main, newest_step, outcome, program, read_metrics,
                     reserve_port, start_announced, wait_for, weir)
from redis_servers import Redis, need

STEPS = 80
MODEL = ("mlp", "--hidden", 84, "--seed", 5)
SECRET = "hushhush-2718"


def write_spec(folder):
    folder.small_data(120, 24)
    path = folder.small_spec(folder.model(*MODEL), 2, STEPS, STEPS // 4)
    with open(path, "a") as file:
        file.write("checkpoint: {every_steps: 10, keep: 2}\n")
    return path


def expected():
    """The outcome of a run that nobody disturbs."""
    def train():
        with Folder() as folder:
            weir("train", write_spec(folder), "--threads", 1, "--out", folder.file("out"))
            return outcome(folder.file("out/metrics.jsonl"))
    return kept("leadership", train)


class Pair(Cluster):
    """A cluster with a coordinator that leads and one that stands by; members and clients know both."""

    def __init__(self, folder):
        super().__init__(folder, servers=0, workers=0, is_patient=True, gate=Gate(folder))
        self.leader, self.first = self.coordinator, self.address
        self.standby, self.second = start_announced(
            program("weir-server"), "--role=coordinator", "--listen", "127.0.0.1:0", "--store", self.store, *self.patience)
        self.processes.append(self.standby)
        self.address = f"{self.first},{self.second}"
        self.add_server()
        self.add_server()
        self.add_worker()
        self.add_worker()


class Run:
    """A run that a client follows. stop: the step at which it stands still until its end is waited for."""

    def __init__(self, folder, cluster, stop=None):
        self.gate, self.metrics = cluster.gate, folder.file("metrics.jsonl")
        if stop is not None:
            self.gate.stop_at(stop)
        self.client = Process(program("weir"), "submit", write_spec(folder), "--follow", "--metrics",
                              self.metrics, "--coordinator", cluster.address)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.client.__exit__()

    def wait_step(self, step):
        def holds():
            assert self.client.child.poll() is None, f"before step {step}: {self.client.output()[-2000:]}"
            return newest_step(self.metrics) >= step
        wait_for(holds, f"step {step}")

    def end(self):
        """It has ended in the same bits, without a roll-back, and every step came once."""
        self.gate.open()
        assert self.client.wait() == 0, self.client.output()[-3000:]
        assert outcome(self.metrics) == expected()
        assert not any("incarnation" in event for event in read_metrics(self.metrics)), "it was rolled back"


def joined(process, address):
    """How often a member has joined the coordinator at that address."""
    return process.output().count(f"joined coordinator={address} ")


def test_a_standby_takes_over_from_a_killed_leader_and_no_step_is_lost_or_repeated():
    with Folder() as folder, Pair(folder) as pair, Run(folder, pair, stop=40) as run:
        refused = weir("runs", "--coordinator", pair.second, status=3).stderr
        assert f"a standby of {pair.first}; pass --coordinator {pair.first}\n" in refused, refused
        run.wait_step(10)
        pair.leader.send(signal.SIGKILL)
        began = time.monotonic()
        wait_for(lambda: "state_restored" in pair.standby.output(), "the standby to lead")
        print(f"# it leads after {time.monotonic() - began:.1f} s", flush=True)
        run.end()


def test_a_frozen_leader_is_replaced_and_ends_itself_when_it_thaws():
    with Folder() as folder, Pair(folder) as pair, Run(folder, pair, stop=40) as run:
        run.wait_step(10)
        pair.leader.send(signal.SIGSTOP)
        began = time.monotonic()
        members = [server for server, _ in pair.servers] + pair.workers
        # Well before their connections break for want of an answer to keepalive.
        wait_for(lambda: all(joined(member, pair.second) for member in members), "the members to come over")
        print(f"# all members have come over after {time.monotonic() - began:.1f} s", flush=True)
        assert all("it has said nothing for" in member.output() for member in members)
        pair.leader.send(signal.SIGCONT)
        assert pair.leader.wait() == 1
        last = [line for line in pair.leader.output().splitlines() if line.startswith("weir-server: ")]
        assert len(last) == 1 and f"another coordinator leads, at {pair.second}: " in last[0], last
        run.end()


def test_members_outlast_a_leader_that_froze_for_a_while():
    with Folder() as folder, Cluster(folder, is_patient=True, gate=Gate(folder)) as cluster, \
            Run(folder, cluster, stop=40) as run:
        run.wait_step(10)
        cluster.coordinator.send(signal.SIGSTOP)
        wait_for(lambda: "it has said nothing for" in cluster.workers[0].output(), "the worker to notice")
        cluster.coordinator.send(signal.SIGCONT)
        run.end()


def test_a_leader_restarted_at_its_address_leads_at_once():
    with Folder() as folder, Cluster(folder, is_patient=True, gate=Gate(folder)) as cluster, \
            Run(folder, cluster, stop=40) as run:
        run.wait_step(10)
        cluster.coordinator.send(signal.SIGKILL)
        cluster.coordinator.wait()
        cluster.start_coordinator()
        assert cluster.json("runs")[0]["state"] == "running"
        assert "a standby of" not in cluster.coordinator.output(), "it waited for the end of its own lease"
        run.end()


def test_a_store_that_comes_later_is_waited_for():
    need("redis-server")
    with Folder() as folder:
        port = reserve_port()
        url = f"redis://127.0.0.1:{port}"
        with Process(program("weir-server"), "--listen", f"127.0.0.1:{reserve_port()}", "--store", url,
                     "--wait-store", int(PATIENCE)) as server:
            wait_for(lambda: "waiting_for_store" in server.output(), "a word that it waits")
            assert server.child.poll() is None
            with Process("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder.path):
                wait_for(lambda: "leading" in server.output(), "the server to lead")
                server.send(signal.SIGTERM)
                assert server.wait() == 0, server.output()


def test_a_store_that_is_not_there_is_an_error_at_once():
    url = f"redis://127.0.0.1:{reserve_port()}"
    done = subprocess.run([program("weir-server"), "--listen", "127.0.0.1:0", "--store", url], capture_output=True,
                          text=True, timeout=PATIENCE)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("weir-server: store: ") and url[len("redis://"):] in last, done


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WEIR_STORE")}
    return {**kept, **more}


def test_a_password_is_refused_on_a_command_line():
    with Folder() as folder:
        url = f"redis://:{SECRET}@127.0.0.1:{reserve_port()}"
        for command in ((program("weir-server"), "--listen", "127.0.0.1:0", "--store", url),
                        (program("weir"), "train", write_spec(folder), "--out", folder.file("out"), "--store", url)):
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 2 and "WEIR_STORE" in done.stderr, done
            assert SECRET not in done.stdout + done.stderr, done


def tree(pid):
    found = [pid]
    for name in ("weir-server", "weir-worker"):
        for child in children_of(pid, name):
            found += tree(child)
    return found


def test_a_password_is_shown_nowhere():
    with Folder() as folder:
        gate, metrics = Gate(folder), folder.file("metrics.jsonl")
        gate.stop_at(10)
        with Redis(folder, requirepass=SECRET) as redis, \
             Process(program("weir"), "train", write_spec(folder), "--out", folder.file("out"), "--threads", 1,
                     "--store", f"redis://127.0.0.1:{redis.port}", "--metrics", metrics,
                     env=environment(**gate.variables, WEIR_STORE_PASSWORD=SECRET, WEIR_LOG="debug")) as training:
            wait_for(lambda: newest_step(metrics) >= 10, "step 10")
            pids = tree(training.child.pid)
            assert len(pids) >= 4, pids
            for pid in pids:
                with open(f"/proc/{pid}/cmdline") as command:
                    line = command.read()
                assert line and SECRET not in line, line
            gate.open()
            assert training.wait() == 0, training.output()[-2000:]
            assert SECRET not in training.output()
        for base, _, names in os.walk(folder.file("out")):
            for name in names:
                with open(os.path.join(base, name), "rb") as file:
                    assert SECRET.encode() not in file.read(), name
        assert outcome(metrics)["weights"] == expected()["weights"]


def test_a_server_of_another_store_is_left_out_and_says_why():
    with Folder() as folder, Cluster(folder, servers=0, workers=1, is_patient=True) as cluster:
        right, cluster.store = cluster.store, "file://" + folder.file("other")
        cluster.add_server()
        with Run(folder, cluster) as run:
            def reason():
                return next((entry["message"] for entry in cluster.json("runs")), "")
            wait_for(lambda: "is not the coordinator's" in reason(), "a message of the run")
            assert "waiting for a server" in reason() and folder.file("other") in reason(), reason()
            assert "is not the coordinator's" in weir("servers", "--coordinator", cluster.address).stdout
            assert "is not the coordinator's" in weir("status", "small", "--coordinator", cluster.address).stdout
            cluster.store = right
            cluster.add_server()
            assert run.client.wait() == 0, run.client.output()[-2000:]
            assert outcome(run.metrics) == expected()
            wrong, right = cluster.json("servers")
            assert wrong["message"] and not right["message"], (wrong, right)
        assert not [name for _, _, names in os.walk(folder.file("other")) for name in names if len(name) > 60], \
            "a block was written to the wrong store"


def test_a_model_that_the_store_lost_fails_its_run_by_name():
    with Folder() as folder, Cluster(folder, servers=0, workers=0) as cluster:
        run = weir("submit", write_spec(folder), "--coordinator", cluster.address).stdout.strip()
        cluster.coordinator.send(signal.SIGTERM)
        cluster.coordinator.wait()
        for base, _, names in os.walk(folder.file("store/blocks")):
            for name in names:
                os.unlink(os.path.join(base, name))
        cluster.start_coordinator()
        wait_for(lambda: cluster.json("status", run)["state"] == "failed", "the run to fail")
        assert "the store has lost the model" in cluster.json("status", run)["message"]


if __name__ == "__main__":
    main(globals())
