"""The modes beside each other, `make bench PARTS=modes`: samples/s with a worker that freezes now and then, and over a slow link,
with what travels over it."""
import collections
import heapq
import itertools
import os
import re
import selectors
import socket
import statistics
import threading
import time

import late
import rounds
from harness import Cluster, Folder, Process, program, read_metrics, wait_for

INNER = 20
LOCAL = "  mode: local\n  local: {{replicas: 2, inner_steps: {}, inner_state: {}}}\n"
MODES = {"sync": "", "ssp 1": late.mode(1), "ssp 4": late.mode(4), f"local, {INNER} steps": LOCAL.format(INNER, "reset"),
         "the same, kept": LOCAL.format(INNER, "kept"), "async": late.mode(late.ASYNC)}
Link = collections.namedtuple("Link", "mbit delay_seconds")
LINK = Link(50, 0.02)
CHUNK_BYTES = 16384
STEPS, WARM_STEPS = 60, 20  # over the link; the first are not measured
UNLOADED = re.compile(r"run_unloaded run=\S+ .* gradient_bytes=(\d+) weights=\d+ weight_bytes=(\d+) ")


class Direction:
    """What one connection sends the other: bytes go out one after another over the link that all connections share, and
    arrive after its delay."""

    def __init__(self, link, source, target):
        self.link, self.source, self.target = link, source, target

    def move(self):
        data = self.source.recv(CHUNK_BYTES)
        self.link.free = max(self.link.free, time.monotonic()) + len(data) * 8 / (self.link.kind.mbit * 1e6)
        return self.link.free + self.link.kind.delay_seconds, data


class Way:
    """One direction of the link: when it is free again."""

    def __init__(self, kind):
        self.kind, self.free = kind, 0.0


class SlowLink:
    """A loopback port in front of a server's, over which each direction carries so many Mbit/s, so late."""

    def __init__(self, kind):
        self.listener, self.target = socket.create_server(("127.0.0.1", 0)), None
        self.address = "127.0.0.1:{}".format(self.listener.getsockname()[1])
        self.ways, self.selector = (Way(kind), Way(kind)), selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.under_way, self.count, self.is_over = [], 0, False
        self.thread = threading.Thread(target=self.run)

    def connect(self):
        near, _ = self.listener.accept()
        host, port = self.target.rsplit(":", 1)
        far = socket.create_connection((host, int(port)))
        for way, source, target in zip(self.ways, (near, far), (far, near)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(source, selectors.EVENT_READ, Direction(way, source, target))

    def take(self, key):
        if key.data is None:
            self.connect()
            return
        try:
            arrives, data = key.data.move()
        except OSError:
            arrives, data = time.monotonic(), b""
        if not data:
            self.selector.unregister(key.fileobj)
        self.count += 1
        heapq.heappush(self.under_way, (arrives, self.count, key.data.target, data))

    def arrive(self):
        """Sends what is due; returns how long until the next is."""
        while self.under_way and self.under_way[0][0] <= time.monotonic():
            _, _, target, data = heapq.heappop(self.under_way)
            try:
                if data:
                    target.sendall(data)
                else:
                    target.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # whoever it was for has gone
        return min(0.1, max(0.0, self.under_way[0][0] - time.monotonic())) if self.under_way else 0.1

    def run(self):
        """Reads no more than the link carries: who sends is held up by what it has not taken."""
        while not self.is_over:
            pause = self.arrive()
            for key, _ in self.selector.select(pause):
                if key.data is None or key.data.link.free < time.monotonic() + key.data.link.kind.delay_seconds:
                    self.take(key)
                else:
                    time.sleep(0.0005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.is_over = True
        self.thread.join()
        self.listener.close()


def over_link(folder, number, mode, kind=LINK):
    """Samples a second of two workers whose server lies behind the link, and bytes of gradients and weights a step."""
    batch = 512
    train = f"  steps: {STEPS}\n  batch: {batch}\n  microbatches: 16\n  seed: 1\n  optimizer: {{lr: 0.01, momentum: 0.9}}\n{mode}"
    spec = folder.spec(folder.file("mlp.onnx"), train=train, tail="workers: {min: 2}\n")
    metrics = folder.file(f"link-{number}.jsonl")
    with SlowLink(kind) as link, Cluster(folder, servers=1, workers=0, advertise=[link.address],
                                     store=f"file://{folder.path}/link-{number}") as cluster:
        server, link.target = cluster.servers[0]
        for worker in range(2):
            cluster.add_worker(node=f"far-{worker}", env={**os.environ, "WEIR_SHM": "off"})
        with Process(program("weir"), "submit", spec, "--follow", "--metrics", metrics, "--coordinator",
                     cluster.address) as client:
            assert client.wait() == 0, client.output()
        gradients, weights = map(int, wait_for(lambda: UNLOADED.search(server.output()), "the run's end").groups())
    seconds = [event["seconds"] for event in read_metrics(metrics) if event["event"] == "step"]
    return batch * (STEPS - WARM_STEPS) / sum(seconds[WARM_STEPS:]), gradients / STEPS, weights / STEPS


def measure(folder, number, mode):
    """Samples a second undisturbed, with a worker that freezes, and over the link; bytes of gradients and weights a step."""
    return (*late.free_and_frozen(folder, f"modes-{number}", mode), *over_link(folder, number, mode))


def main():
    numbers = itertools.count()
    with Folder() as folder:
        folder.model("lenet", "--channels", "32,64", "--hidden", "128", "--seed", "1")
        folder.model("mlp", "--hidden", "128", "--seed", "1")
        print("modes: samples/s of two workers: undisturbed; with one frozen for 200 ms twice a second; with their server behind a "
              f"link of {LINK.mbit} Mbit/s and {1000 * LINK.delay_seconds:.0f} ms each way, and KB a step of gradients and of weights over it; "
              f"the frozen and the linked beside sync's; {late.ROUNDS} rounds")
        seen = rounds.alternate({name: lambda mode=mode: measure(folder, next(numbers), mode) for name, mode in MODES.items()},
                                late.ROUNDS, control="sync")
    for name, runs in seen.items():
        free, frozen, linked, gradients, weights = map(statistics.median, zip(*runs))
        print(f"  {name:16} {free:6.0f}  {frozen:6.0f} ({rounds.compare(seen, name, 'sync', 1)})  {linked:6.0f} "
              f"({rounds.compare(seen, name, 'sync', 2)})  {gradients / 1e3:7.1f}  {weights / 1e3:7.1f}", flush=True)
