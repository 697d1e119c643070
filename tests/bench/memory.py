"""The most memory that each process of a cluster had which trains a GPT of 124 million parameters: one server, one
worker of one executor, a checkpoint at the end, and the client's export."""
import os

from harness import Cluster, Folder, program, weir

STEPS = 2
MODEL = ("gpt", "--vocabulary", 50257, "--context", 64, "--width", 768, "--depth", 12, "--heads", 12)


def peak_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def client_peak(*arguments):
    """Runs the client to its end; (the most memory it had, its output)."""
    reader, writer = os.pipe()
    child = os.posix_spawn(program("weir"), ["weir", *map(str, arguments)], os.environ,
                           file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)])
    os.close(writer)
    with os.fdopen(reader) as pipe:
        output = pipe.read()
    _, status, usage = os.wait4(child, 0)
    assert status == 0, f"weir {' '.join(map(str, arguments))}: status {status}"
    return usage.ru_maxrss * 1024, output


def write_spec(folder, model):
    folder.file("text", bytes(range(250)) * 40)
    return folder.file("gpt.yaml", f"""name: gpt
model: {{onnx: {model}, loss: cross_entropy}}
data: {{root: {folder.path}, train: {{format: text, file: text, unit: bytes, context: 64}}}}
train: {{steps: {STEPS}, batch: 1, microbatches: 1, seed: 1, optimizer: {{name: sgd, lr: 0.01}}}}
""")


def measure(folder, spec):
    """{process: bytes} of one run."""
    with Cluster(folder) as cluster:
        submit, output = client_peak("submit", spec, "--follow", "--coordinator", cluster.address)
        run = output.split()[0]
        pids = {"coordinator": cluster.coordinator, "server": cluster.servers[0][0], "worker": cluster.workers[0]}
        peaks = {name: peak_bytes(process.child.pid) for name, process in pids.items()}
        peaks["submit"] = submit
        peaks["export"], _ = client_peak("export", run, "-o", folder.file("out.onnx"), "--coordinator", cluster.address)
    return peaks


def main():
    with Folder() as folder:
        model = folder.file("gpt.onnx")
        weir("model", *MODEL, "-o", model)
        size = os.path.getsize(model)
        print(f"peak memory, one run of {' '.join(map(str, MODEL))}, a file of {size / 2**20:.0f} MiB")
        for name, peak in measure(folder, write_spec(folder, model)).items():
            print(f"  {name:12} {peak / 2**20:6.0f} MiB, {peak / size:.2f} times the file")


if __name__ == "__main__":
    main()
