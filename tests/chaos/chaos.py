"""Trains while workers are killed, frozen, told to leave and started, and while the network breaks; then compares
every bit with an undisturbed run.

usage: chaos.py [SEED...]        (1 2 3 unless given)

A seed fixes the plan of disturbances; when each of them strikes depends on the machine. One line a seed: the time it
took and what was done. Ends by itself; exit status 1 if a run ended otherwise than the undisturbed one, or a process
died that nobody killed. What the processes said is kept then, and its place is told."""
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from harness import BUILD, Cluster, Folder, Process, outcome, program, weir

STEPS = 300
TRAIN_SAMPLES, EVAL_SAMPLES = 2000, 600
WORKERS_MAX = 4
STORM_SECONDS = 25   # then the run may end in peace
SEED_SECONDS = 150   # a run that has not ended by then never will
# Three runs of different shapes: microbatches, steps between evaluations.
SHAPES = ((8, 3), (6, 2), (5, 7))


class Proxy:
    """A loopback port in front of another that can reset its connections, or hold their bytes back for a while."""

    def __init__(self):
        self.target, self.held_until, self.pairs, self.lock = None, 0.0, set(), threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                host, port = self.target.split(":")
                far = socket.create_connection((host, int(port)))
            except OSError:
                near.close()
                continue
            pair = (near, far)
            for end in pair:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self.forward, args=(pair, source, sink), daemon=True).start()

    def forward(self, pair, source, sink):
        try:
            while data := source.recv(1 << 16):
                while (pause := self.held_until - time.monotonic()) > 0:
                    time.sleep(min(pause, 0.1))
                sink.sendall(data)
        except OSError:
            pass
        self.reset(pair)

    def reset(self, pair):
        with self.lock:
            if pair not in self.pairs:
                return
            self.pairs.remove(pair)
        for end in pair:
            try:  # a reset wakes the threads of the pair, and closing without lingering sends one
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)
            except OSError:
                pass
            end.close()

    def reset_some(self, chooser):
        with self.lock:
            pairs = [pair for pair in self.pairs if chooser.random() < 0.7]
        for pair in pairs:
            self.reset(pair)

    def hold(self, seconds):
        self.held_until = time.monotonic() + seconds

    def close(self):
        self.listener.close()
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            self.reset(pair)


def write_spec(folder, shape):
    return folder.small_spec("lenet.onnx", shape[0], STEPS, shape[1])


def train_calmly(folder, shape):
    metrics = folder.file(f"calm-{shape[0]}.jsonl")
    weir("train", write_spec(folder, shape), "--workers", 1, "--threads", 1, "--out", metrics + ".out", "--metrics",
         metrics)
    return outcome(metrics)


class Storm:
    """The disturbances of one run."""

    def __init__(self, seed, cluster, proxies):
        self.chooser, self.cluster, self.proxies = random.Random(seed), cluster, proxies
        self.counts, self.frozen, self.expected = Counter(), {}, {}

    def living(self):
        return [worker for worker in self.cluster.workers if worker.child.poll() is None]

    def start(self):
        if len(self.living()) < WORKERS_MAX:
            self.cluster.add_worker(self.chooser.choice((1, 1, 2, 3)))
            self.counts["start"] += 1

    def end(self, worker, number, status):
        worker.send(number)
        self.expected.setdefault(worker, set()).update(status)
        self.counts[signal.Signals(number).name] += 1

    def kill(self):
        if living := self.living():
            self.end(self.chooser.choice(living), signal.SIGKILL, {-signal.SIGKILL})

    def kill_all(self):
        for worker in self.living():
            self.end(worker, signal.SIGKILL, {-signal.SIGKILL})
        self.counts["all killed"] += 1

    def leave(self):
        if living := self.living():
            self.end(self.chooser.choice(living), signal.SIGTERM, 
                     {0, 128 + signal.SIGTERM, -signal.SIGTERM})  # the last: it had hardly begun

    def freeze_one(self, processes, seconds, what):
        if awake := [process for process in processes if process not in self.frozen]:
            process = self.chooser.choice(awake)
            process.send(signal.SIGSTOP)
            self.frozen[process] = time.monotonic() + self.chooser.uniform(1, seconds)
            self.counts[what] += 1

    def freeze(self):
        self.freeze_one(self.living(), 8, "SIGSTOP")

    def freeze_server(self):  # shorter than the silence for which the coordinator gives a server up
        self.freeze_one([server for server, _ in self.cluster.servers], 3, "server frozen")

    def freeze_coordinator(self):
        self.freeze_one([self.cluster.coordinator], 8, "coordinator frozen")

    def reset(self):
        self.chooser.choice(self.proxies).reset_some(self.chooser)
        self.counts["reset"] += 1

    def hold(self):
        self.chooser.choice(self.proxies).hold(self.chooser.uniform(0.2, 3))
        self.counts["hold"] += 1

    def strike(self):
        actions = [self.kill] * 4 + [self.leave] * 3 + [self.freeze] * 3 + [self.reset] * 3 + [self.hold] * 2
        actions += [self.start] * 8 + [self.kill_all, self.freeze_server, self.freeze_coordinator]
        self.chooser.choice(actions)()

    def thaw(self, now):
        for process in [process for process, until in self.frozen.items() if until <= now]:
            process.send(signal.SIGCONT)
            del self.frozen[process]

    def rage_until(self, is_over):
        """Disturbs until the run is over; towards the end only sees to it that somebody works."""
        end, next_strike = time.monotonic() + STORM_SECONDS, 0
        while not is_over():
            now = time.monotonic()
            self.thaw(now)
            if now >= next_strike and (now < end or not self.living()):
                self.strike() if now < end else self.start()
                next_strike = now + self.chooser.expovariate(1 / 0.5)
            assert now < end + SEED_SECONDS - STORM_SECONDS, "the run does not end"
            time.sleep(0.02)

    def check_processes(self):
        for number, worker in enumerate(self.cluster.workers):
            status = worker.child.poll()
            assert status is None or status in self.expected.get(worker, set()), (
                f"worker {number} ended with {status}")
        for server in [self.cluster.coordinator] + [server for server, _ in self.cluster.servers]:
            assert server.child.poll() is None, f"a server ended with {server.child.poll()}"


def compare(found, expected):
    assert [step[0] for step in found["steps"]] == list(range(STEPS)), "every step once, in order"
    for what in ("steps", "evals"):
        assert len(found[what]) == len(expected[what]), f"{len(found[what])} {what}, not {len(expected[what])}"
        for one, other in zip(found[what], expected[what]):
            assert one == other, f"{what}: {one}, undisturbed {other}"
    assert found["weights"] == expected["weights"], "the weights differ"


def train_in_storm(folder, seed, shape, expected):
    """Returns what was done, in words."""
    proxies = [Proxy() for _ in range(3)]
    metrics = folder.file(f"storm-{seed}.jsonl")
    with Cluster(folder, servers=2, workers=0, advertise=[proxy.address for proxy in proxies[1:]]) as cluster:
        submit_to = cluster.address
        for proxy, target in zip(proxies, [cluster.address] + [address for _, address in cluster.servers]):
            proxy.target = target
        cluster.address = proxies[0].address  # the workers' way
        storm = Storm(seed, cluster, proxies)
        try:
            with Process(program("weir"), "submit", write_spec(folder, shape), "--follow", "--coordinator", submit_to,
                         "--metrics", metrics) as client:
                storm.rage_until(lambda: client.child.poll() is not None)
                storm.check_processes()
                assert client.child.returncode == 0, client.output()[-2000:]
            compare(outcome(metrics), expected)
        except AssertionError:
            keep_logs(seed, cluster)
            raise
        finally:
            for proxy in proxies:
                proxy.close()
    return ", ".join(f"{count} {what}" for what, count in sorted(storm.counts.items()))


def keep_logs(seed, cluster):
    folder = os.path.join(BUILD, f"chaos-{seed}")
    os.makedirs(folder, exist_ok=True)
    named = [("coordinator", cluster.coordinator)]
    named += [(f"server-{number}", server) for number, (server, _) in enumerate(cluster.servers)]
    named += [(f"worker-{number}", worker) for number, worker in enumerate(cluster.workers)]
    for name, process in named:
        with open(os.path.join(folder, name + ".log"), "w") as file:
            file.write(f"pid {process.child.pid} status {process.child.poll()}\n{process.output()}")
    print(f"     what the processes said is in {folder}", flush=True)


def main():
    seeds = [int(seed) for seed in sys.argv[1:]] or [1, 2, 3]
    calm, failed = {}, 0
    with Folder() as folder:
        folder.small_data(TRAIN_SAMPLES, EVAL_SAMPLES)
        weir("model", "lenet", "--channels", "4,8", "--hidden", "512,200", "--batch-norm", "--seed", "3", "-o",
             folder.file("lenet.onnx"))
        for seed in seeds:
            shape = SHAPES[seed % len(SHAPES)]
            if shape not in calm:
                calm[shape] = train_calmly(folder, shape)
            began = time.monotonic()
            try:
                done = "ok  ", train_in_storm(folder, seed, shape, calm[shape])
            except AssertionError as why:
                failed += 1
                done = "FAIL", str(why)
            print(f"{done[0]} seed {seed} ({time.monotonic() - began:.1f} s): {done[1]}", flush=True)
    print(f"{len(seeds) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
