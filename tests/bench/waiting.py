"""What part of a step executors wait, by model, `make bench PARTS=waiting`: two workers of one thread and two servers, on this
machine and with a link to each of them, in network namespaces. WEIR_BENCH_MODELS names some of the models alone."""
import array
import math
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import network  # noqa: E402
from harness import Cluster, Folder, Process, newest_step, program, wait_for  # noqa: E402
from scraping import http_address, scrape, total  # noqa: E402

LINKS = {"this machine": None, "1 Gbit/s": 1000, "100 Mbit/s": 100}
LINK_MS = 20  # that the queue of a link holds at most
SAMPLES, WARM_STEPS, STEPS, LEAST_SECONDS = 512, 2, 8, 2
# name: kind and options of `weir model`, shape of a sample, classes, batch in 8 microbatches
MODELS = {"lenet": (("lenet", "--channels", "32,64", "--hidden", "128", "--batch-norm"), (1, 28, 28), 10, 128),
          "resnet18": (("resnet18", "--input", "3,32,32"), (3, 32, 32), 10, 32),
          "mlp": (("mlp", "--hidden", "4096,4096"), (1, 28, 28), 10, 128),
          "gpt": (("gpt", "--vocabulary", "256", "--context", "64", "--width", "256", "--depth", "4", "--heads", "4"), 64, 256, 64)}


def write_array(path, kind, shape, values):
    """As numpy.save does."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + values)


def write_data(folder, shape, classes):
    """The lines of a spec's `data` for samples that are drawn; what they are makes no difference to the time."""
    draw = random.Random(1)
    if isinstance(shape, int):
        folder.file("tokens", array.array("H", (draw.randrange(classes) for _ in range(shape * SAMPLES + 1))).tobytes())
        return f"{{format: tokens, file: tokens, dtype: u16, context: {shape}}}"
    write_array(folder.file("images.npy"), "|u1", (SAMPLES, *shape), draw.randbytes(SAMPLES * math.prod(shape)))
    write_array(folder.file("labels.npy"), "<i8", (SAMPLES,),
                array.array("q", (draw.randrange(classes) for _ in range(SAMPLES))).tobytes())
    return "{format: npy, columns: {images: images.npy, labels: labels.npy}}\n  transforms: [{scale: 0.0039}]"


def write_spec(folder, name):
    (kind, *options), shape, classes, batch = MODELS[name]
    model = folder.model(kind, "--seed", "1", *options)
    return folder.file("spec.yaml", f"""name: {name}
model: {{onnx: {model}, loss: cross_entropy}}
data:
  root: {folder.path}
  train: {write_data(folder, shape, classes)}
train:
  steps: 1000000
  batch: {batch}
  microbatches: 8
  seed: 1
  optimizer: {{lr: 0.001, momentum: 0.9}}
workers: {{min: 2}}
""")


class Place:
    """A cluster on this machine, or on machines of its own with such a link each."""

    def __init__(self, folder, mbit):
        self.network = network.Network(5) if mbit else None
        machines = self.network.machines if mbit else [None] * 5
        for machine in machines[1:]:
            if machine:
                machine.limit(mbit, LINK_MS)
        host = [{"preexec_fn": machine.enter} if machine else {} for machine in machines]
        listen = [f"{machine.address}:0" if machine else "127.0.0.1:0" for machine in machines]
        self.cluster = Cluster(folder, servers=0, workers=0, listen=machines[0] and listen[0],
                               store="file://" + tempfile.mkdtemp(dir=folder.path), **host[0])
        for at in (1, 2):
            self.cluster.servers.append(self.cluster.start_server(listen=machines[at] and listen[at], **host[at]))
            self.cluster.all_join()
        for at in (3, 4):
            alone = {"node": f"far-{at}", "env": {**os.environ, "WEIR_SHM": "off"}} if mbit else {}
            self.cluster.add_worker(options=("--http", listen[at]), **alone, **host[at])
        self.cluster.all_join()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.cluster.__exit__()
        if self.network:
            self.network.__exit__()


class Moment:
    """What the workers have done by now, and how many steps are made."""

    def __init__(self, workers, metrics):
        self.when, self.steps = time.monotonic(), newest_step(metrics)
        pages = [scrape(http_address(worker)) for worker in workers]
        self.seconds = {what: sum(total(page, f"weir_worker_{what}_seconds_total") for page in pages)
                        for what in ("busy", "wait", "data_wait")}


def measure(folder, name, mbit):
    """(samples a second, parts of the executors' time: computed, waited for weights, waited for data)"""
    spec, metrics = write_spec(folder, name), folder.file("metrics.jsonl")
    with Place(folder, mbit) as place, Process(program("weir"), "submit", spec, "--follow", "--metrics", metrics, "--coordinator",
                                               place.cluster.address):
        wait_for(lambda: newest_step(metrics) >= WARM_STEPS, "the first steps")
        first = Moment(place.cluster.workers, metrics)
        wait_for(lambda: newest_step(metrics) >= first.steps + STEPS and time.monotonic() > first.when + LEAST_SECONDS, "the steps")
        last = Moment(place.cluster.workers, metrics)
    os.remove(metrics)
    seconds = last.when - first.when
    spent = {what: (last.seconds[what] - first.seconds[what]) / seconds / len(place.cluster.workers) for what in last.seconds}
    rate = MODELS[name][-1] * (last.steps - first.steps) / seconds
    return rate, (spent["busy"] - spent["data_wait"], spent["wait"], spent["data_wait"])


def main():
    """In a process that can have a network of its own."""
    subprocess.run([sys.executable, os.path.abspath(__file__)], check=True)


def run():
    wanted = os.environ.get("WEIR_BENCH_MODELS", "").split() or MODELS
    links = {place: mbit for place, mbit in LINKS.items() if not mbit or os.environ[network.OWN] == "own"}
    print("waiting: two workers of one thread and two servers: samples/s, and what part of a step executors compute, wait for "
          "weights and wait for data; behind links, each member has one of its own")
    if len(links) < len(LINKS):
        print(f"  without links: {os.environ[network.OWN]}")
    for name in wanted:
        for place, mbit in links.items():
            with Folder() as folder:
                rate, parts = measure(folder, name, mbit)
            print(f"  {name:9} {place:13} {rate:7.1f}  " + "  ".join(f"{part:6.1%}" for part in parts), flush=True)


if __name__ == "__main__":
    network.enter()
    run()
