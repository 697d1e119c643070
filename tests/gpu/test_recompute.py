"""Activations that are computed again on a GPU: the same bits, in less of the device's memory."""
import glob
import os
import re
import shutil
import subprocess

import gpu  # noqa: F401
from harness import Cluster, Folder, Skip, done_event, main, skip_unless_gpu, wait_for, weir

STEPS, CONTEXT, TOKENS, BATCH = 6, 256, 1 << 16, 32
MODEL = ("--vocabulary", "256", "--context", CONTEXT, "--width", "512", "--heads", "8", "--depth", "12")
FOREVER = 1000000000
MEBIBYTE = 1 << 20
LOADED = re.compile(r"program_bytes=(\d+) unreplayed_bytes=(\d+) steps=(\d+) replays=(\d+)")


def make_spec(folder, mode, precision, steps=STEPS):
    """GPT-2 of 38 million weights, on random bytes. In bf16 its attention is fused; elsewhere there is dropout instead."""
    model = folder.file(f"gpt-{precision}.onnx")
    if not os.path.exists(model):
        weir("model", "gpt", *MODEL, "--dropout", "0" if precision == "bf16" else "0.1", "-o", model)
        folder.file("tokens.bin", b"".join(bytes((byte, 0)) for byte in os.urandom(TOKENS)))
    return folder.file(f"{mode}-{precision}-{steps}.yaml", f"""name: {mode}-{precision}
model: {{onnx: {model}, loss: cross_entropy}}
data: {{root: {folder.path}, train: {{format: tokens, file: tokens.bin, dtype: u16, context: {CONTEXT}}}}}
train:
  steps: {steps}
  batch: {BATCH}
  microbatches: 1
  precision: {precision}
  seed: 5
  optimizer: {{name: sgd, lr: 0.01, momentum: 0.9}}
checkpoint: {{every_steps: {steps}, keep: 1}}
workers: {{recompute: {mode}}}
""")


def read_loaded(text):
    """(bytes of the program, of the one that keeps everything, steps that are computed again)"""
    said = LOADED.search(text)
    assert said, text[-3000:]
    return int(said.group(1)), int(said.group(2)), int(said.group(4))


def train(folder, mode, precision, *options):
    """(the hash of the weights, what the worker has loaded)"""
    spec = make_spec(folder, mode, precision)
    out = f"{spec}.{len(options)}.out"
    weir("train", spec, "--out", out, "--device", "cuda", "--force", *options)
    (log,) = glob.glob(os.path.join(out, "logs", "worker*.log"))
    with open(log) as file:
        return done_event(os.path.join(out, "metrics.jsonl"))["weights_sha256"], read_loaded(file.read())


def test_the_weights_are_the_same_to_the_bit():
    skip_unless_gpu()
    with Folder() as folder:
        for precision in "fp32", "tf32", "bf16":
            weights, (none_bytes, same_bytes, replays) = train(folder, "none", precision)
            assert none_bytes == same_bytes and replays == 0
            same, (full_bytes, unreplayed_bytes, replays) = train(folder, "full", precision)
            assert same == weights, f"{precision}: full changes the weights"
            assert unreplayed_bytes == none_bytes and full_bytes < none_bytes / 2 and replays > 0
            most = (full_bytes + none_bytes) // 2
            same, (auto_bytes, _, some) = train(folder, "auto", precision, "--memory", most)
            assert same == weights, f"{precision}: auto changes the weights"
            assert full_bytes <= auto_bytes <= most and 0 < some < replays
            print(f"# {precision}: {none_bytes / MEBIBYTE:.0f} MiB; full {full_bytes / MEBIBYTE:.0f} MiB, {replays} steps "
                  f"again; of {most / MEBIBYTE:.0f} MiB auto takes {auto_bytes / MEBIBYTE:.0f}, {some} steps again")


def used_bytes():
    """Of the first GPU's memory, by whomever."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        raise Skip("nvidia-smi is not there, which tells how much of a GPU's memory is used")
    done = subprocess.run([tool, "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=False)
    if not re.fullmatch(r"\s*\d+\s*", done.stdout):
        raise Skip(f"nvidia-smi does not tell how much memory is used: {(done.stdout + done.stderr).strip()}")
    return int(done.stdout) * MEBIBYTE


def measure(folder, mode):
    """(what more is in use of the device's memory while it trains, what the program takes)"""
    spec = make_spec(folder, mode, "bf16", FOREVER)
    with Cluster(folder, workers=0, store="file://" + folder.file("store-" + mode)) as cluster:
        before = used_bytes()
        worker = cluster.add_worker(options=("--device", "cuda:0", "--data-root", "/"))
        run = weir("submit", spec, "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: cluster.json("status", run)["step"] >= 3, "three steps")
        return used_bytes() - before, read_loaded(worker.output())[0]


def test_less_of_the_devices_memory_is_in_use():
    skip_unless_gpu()
    with Folder() as folder:
        (none_used, none_bytes), (full_used, full_bytes) = (measure(folder, mode) for mode in ("none", "full"))
        print(f"# in use with none {none_used / MEBIBYTE:.0f} MiB (program {none_bytes / MEBIBYTE:.0f}), with full "
              f"{full_used / MEBIBYTE:.0f} ({full_bytes / MEBIBYTE:.0f})")
        saved = none_bytes - full_bytes
        assert abs(none_used - full_used - saved) < saved / 4


if __name__ == "__main__":
    main(globals())
