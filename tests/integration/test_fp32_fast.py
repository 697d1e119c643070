#!/usr/bin/env python3
"""precision: fp32-fast: convolutions agree with their references (cpu_winograd_test has the shapes that Winograd's algorithm
of larger tiles computes); any cluster ends in the same weights, through kills, too, and in fp32, whose tiles are small; a CPU
without AVX-512 computes what it does in fp32."""
import os
import re
import signal
import subprocess

from gate import Gate
from harness import (PATIENCE, Cluster, Folder, Process, Skip, children_of, done_event, kept, main, newest_step, program,
                     wait_for, weir)

# Of microbatches of 32 images of 16x16, Winograd's algorithm computes the convolutions of 64 and of 128 channels in both.
MODEL = ("resnet18", "--input", "1,16,16", "--depth", "1,1,1,1", "--classes", "10", "--seed", "3")
OLDER = {"ONEDNN_MAX_CPU_ISA": "AVX2"}  # what an older CPU has: oneDNN heeds it on any
STEPS, MICROBATCHES, SAMPLES = 2, 3, 32  # samples of a microbatch


def has_avx512():
    with open("/proc/cpuinfo") as file:
        return "avx512bw" in file.read()


def skip_without_winograd():
    if not has_avx512():
        raise Skip("this CPU has no AVX-512: fp32-fast computes what fp32 does")


def run_suite(name, *arguments, least):
    """Fails with what failed, or if there are fewer results."""
    done = subprocess.run([program(f"tests/conformance/{name}"), "cpu", "fp32-fast", *arguments], capture_output=True,
                          text=True, timeout=PATIENCE * 5, check=False)
    passed = re.search(r"^# (\d+) passed, 0 failed", done.stdout, re.M)
    assert done.returncode == 0 and passed and int(passed.group(1)) >= least, (done.stdout + done.stderr)[-3000:]


def write_spec(folder, precision, steps=STEPS):
    folder.small_data(STEPS * MICROBATCHES * SAMPLES, 12)
    return folder.file(f"{precision}.yaml", f"""name: fast
model: {{onnx: resnet18.onnx}}
data:
  root: {folder.path}
  train: {{format: idx, images: train-images-idx3, labels: train-labels-idx1}}
  transforms: [{{center_crop: {{size: 16}}}}, {{scale: 0.00392156862745098}}]
train:
  steps: {steps}
  batch: {MICROBATCHES * SAMPLES}
  microbatches: {MICROBATCHES}
  precision: {precision}
  optimizer: {{lr: 0.01, momentum: 0.9}}
""")


def train(folder, spec, name, *options, **process):
    """The event that ends the run."""
    weir("train", spec, "--out", folder.file(name), *options, **process)
    return done_event(folder.file(f"{name}/metrics.jsonl"))


def undisturbed():
    """weights_sha256 of one worker of one thread, by precision."""
    def make():
        with Folder() as folder:
            folder.model(*MODEL)
            return {precision: train(folder, write_spec(folder, precision), precision, "--threads", 1)["weights_sha256"]
                    for precision in ("fp32", "fp32-fast")}
    return kept("fp32-fast", make)


def test_convolutions_agree():
    run_suite("op_test", "Conv", least=1)
    run_suite("onnx_test", "conv", least=20)


def test_any_cluster_ends_in_the_same_weights():
    skip_without_winograd()
    whole = undisturbed()
    assert whole["fp32"] != whole["fp32-fast"], "fp32-fast computes what fp32 does"
    with Folder() as folder:
        folder.model(*MODEL)
        for precision, workers, servers, threads in ("fp32-fast", 2, 2, 1), ("fp32-fast", 1, 1, 3), ("fp32", 2, 2, 1):
            case = f"{precision}, {workers} workers, {servers} servers, {threads} threads"
            done = train(folder, write_spec(folder, precision), f"{precision}-{workers}", "--workers", workers, "--servers",
                         servers, "--threads", threads)
            assert done["weights_sha256"] == whole[precision], case


def test_kills_change_nothing():
    skip_without_winograd()
    whole = undisturbed()["fp32-fast"]
    with Folder() as folder:
        folder.model(*MODEL)
        spec, gate = write_spec(folder, "fp32-fast"), Gate(folder)
        gate.stop_at(0)
        with Process(program("weir"), "train", spec, "--workers", 3, "--servers", 2, "--threads", 1, "--out",
                     folder.file("killed"), env=gate.environment) as training:
            metrics = folder.file("killed/metrics.jsonl")
            wait_for(lambda: newest_step(metrics) >= 0, "step 0")
            os.kill(children_of(training.child.pid, "weir-worker")[0], signal.SIGKILL)
            gate.open()
            assert training.wait() == 0, training.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == whole, "a worker that was killed changes the weights"


def test_a_cpu_without_avx512_computes_what_fp32_does():
    with Folder() as folder:
        folder.model(*MODEL)
        older = {**os.environ, **OLDER}
        fast, plain = (train(folder, write_spec(folder, precision, steps=1), precision, env=older)["weights_sha256"]
                       for precision in ("fp32-fast", "fp32"))
        assert fast == plain


def test_a_cpu_without_avx512_is_not_mixed_with_one_that_has_it():
    skip_without_winograd()
    with Folder() as folder, Cluster(folder, workers=1) as cluster:
        folder.model(*MODEL)
        run = weir("submit", write_spec(folder, "fp32-fast", steps=2000000), "--coordinator", cluster.address).stdout.strip()

        def states():
            return {worker["state"]: worker["message"] for worker in cluster.json("workers")}
        wait_for(lambda: "ready" in states(), "the run on the CPU with AVX-512")
        cluster.add_worker(env={**os.environ, **OLDER})
        message = wait_for(lambda: states().get("refused"), "a refusal")
        assert "avx2" in message and "avx512" in message, message
        weir("cancel", run, "--coordinator", cluster.address)


def test_it_is_inspected_and_others_are_refused_by_key():
    with Folder() as folder:
        folder.model(*MODEL)
        spec = write_spec(folder, "fp32-fast")
        assert "computation    fp32-fast, deterministic; collective auto" in weir("inspect", spec).stdout
        for value in "fp32_fast", "fast", "FP32-FAST", "fp32-faster", "fp64", "''", "[fp32-fast]":
            done = subprocess.run([program("weir"), "inspect", spec, f"train.precision={value}"], capture_output=True,
                                  text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 2 and "train.precision" in done.stderr, (value, done.stderr)


main(globals())
