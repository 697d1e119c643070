"""The most memory that each process of a cluster had which trains a GPT of 500 million parameters: on one worker, and in
stages on 2 and 4 workers, each of one executor; the same weights each time. The model's tensors lie in a file beside it, so
each process reads what it holds. Takes 18 GiB of memory, 8 GB of disk and the ONNX that `make parity` installs."""
import os
import subprocess

from harness import ROOT, Cluster, Folder, done_event, weir
from memory import client_peak, peak_bytes, write_spec

PEER = os.path.join(ROOT, "build", "parity", "bin", "python")
MODEL = ("gpt", "--vocabulary", 256, "--context", 64, "--width", 1280, "--depth", 25, "--heads", 20)
SMALL = ("gpt", "--vocabulary", 256, "--context", 64, "--width", 128, "--depth", 8, "--heads", 4)
EXTERNALIZE = """
import sys, onnx
onnx.save_model(onnx.load(sys.argv[1]), sys.argv[2], save_as_external_data=True, location="weights.bin")
"""


def make_model(folder, options):
    inline, model = folder.file("inline.onnx"), folder.file("gpt.onnx")
    weir("model", *options, "-o", inline)
    subprocess.run([PEER, "-c", EXTERNALIZE, inline, model], check=True)
    os.remove(inline)
    return model


def measure(folder, spec, stages):
    """({process: bytes}, weights_sha256)"""
    metrics = folder.file("metrics.jsonl")
    with Cluster(folder, workers=stages, store="file://" + folder.file(f"store-{stages}")) as cluster:
        submit, _ = client_peak("submit", spec, f"workers={{min: {stages}, stages: {stages}}}", "--follow", "--metrics",
                                metrics, "--coordinator", cluster.address)
        peaks = {f"worker {i + 1}": peak_bytes(worker.child.pid) for i, worker in enumerate(cluster.workers)}
        peaks["server"] = peak_bytes(cluster.servers[0][0].child.pid)
        peaks["coordinator"] = peak_bytes(cluster.coordinator.child.pid)
        peaks["submit"] = submit
    weights = done_event(metrics)["weights_sha256"]
    os.remove(metrics)
    return peaks, weights


def main():
    options = SMALL if os.environ.get("WEIR_BENCH_QUICK") else MODEL
    if not os.path.exists(PEER):
        print("stage-memory: left out: `make parity` installs the ONNX that puts tensors into a file of their own")
        return
    with Folder() as folder:
        spec, hashes = write_spec(folder, make_model(folder, options)), set()
        size = os.path.getsize(folder.file("weights.bin"))
        print(f"peak memory, {' '.join(map(str, options))}, weights of {size / 2**20:.0f} MiB beside the file")
        for stages in (1, 2, 4):
            peaks, weights = measure(folder, spec, stages)
            hashes.add(weights)
            print(f"  {stages} stage{'s' if stages > 1 else ''}: " + ", ".join(
                f"{name} {peak / 2**20:.0f} MiB ({peak / size:.2f})" for name, peak in peaks.items()), flush=True)
        print(f"  weights_sha256: {'the same' if len(hashes) == 1 else hashes}")
        assert len(hashes) == 1, hashes


if __name__ == "__main__":
    main()
