"""A model above 2 GiB, whose tensors lie in a file beside it: submitted, trained for a few steps and exported; the most
memory that each process had. Takes 16 GiB of memory and 12 GB of disk. Where `make parity` has installed ONNX, it opens
the export."""
import os
import subprocess

from external_model import enlarge
from harness import ROOT, Cluster, Folder, weir
from memory import client_peak, peak_bytes

WIDTH, STEPS = 720000, 3
DIMS = {"fc1.weight": (WIDTH, 784), "fc1.bias": (WIDTH,), "head.weight": (10, WIDTH)}
PEER = os.path.join(ROOT, "build", "parity", "bin", "python")
OPEN = """
import sys, numpy, onnx, onnx.reference
onnx.checker.check_model(sys.argv[1])
evaluator = onnx.reference.ReferenceEvaluator(sys.argv[1])
image = numpy.zeros([1, 1, 28, 28], numpy.float32)
print("  ONNX's checker takes it; its evaluator computes", evaluator.run(None, {evaluator.input_names[0]: image})[0].shape)
"""


def write_spec(folder, model):
    folder.small_data(64, 8)
    with open(folder.small_spec(model, 1, STEPS, 1000)) as file:
        text = file.read().replace("batch: 12", "batch: 1").replace(", momentum: 0.9", "")
    return folder.file("external.yaml", "\n".join(line for line in text.splitlines() if not line.startswith("  eval:")))


def main():
    with Folder() as folder:
        small = folder.model("mlp", "--input", "1,28,28", "--hidden", 64, "--classes", 10)
        os.mkdir(folder.file("large"))
        model = folder.file("large/mlp.onnx")
        enlarge(small, model, DIMS)
        size = os.path.getsize(folder.file("large/weights.bin"))
        print(f"a model of {size / 2**30:.2f} GiB with external data, {STEPS} steps; the most memory of each process")
        with Cluster(folder) as cluster:
            submit, output = client_peak("submit", write_spec(folder, model), "--follow", "--coordinator", cluster.address)
            run, out = output.split()[0], folder.file("out.onnx")
            export, _ = client_peak("export", run, "-o", out, "--coordinator", cluster.address)
            peaks = {"coordinator": peak_bytes(cluster.coordinator.child.pid),
                     "server": peak_bytes(cluster.servers[0][0].child.pid),
                     "worker": peak_bytes(cluster.workers[0].child.pid), "submit": submit, "export": export}
            again, _ = client_peak("submit", write_spec(folder, model), "--coordinator", cluster.address)
            peaks["submit again"] = again
        for name, peak in peaks.items():
            print(f"  {name:12} {peak / 2**20:6.0f} MiB, {peak / size:.2f} times the model")
        print(f"  the export: {os.path.getsize(out)} bytes, and {os.path.getsize(out + '.data')} beside it")
        if os.path.exists(PEER):
            subprocess.run([PEER, "-c", OPEN, out], check=True)
        weir("inspect", out)


if __name__ == "__main__":
    main()
