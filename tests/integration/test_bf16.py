#!/usr/bin/env python3
"""precision: bf16 on CPUs: every op agrees with its reference, any cluster ends in the same weights, and a CPU without the
instructions for it says so or, where bits may differ, computes in fp32."""
import functools
import os
import re
import signal
import subprocess

from gate import Gate
from harness import (PATIENCE, Cluster, Folder, Process, Skip, children_of, done_event, main, newest_step, program, wait_for,
                     weir)

# Convolutions, pools, batch norm and products of matrices, whose bf16 kernels all take part.
MODEL = ("lenet", "--channels", "8,16", "--batch-norm", "--dropout", "0.25", "--seed", "3", "--hidden", "300,300")
OLDER = {"ONEDNN_MAX_CPU_ISA": "AVX2"}  # what an older CPU has: oneDNN heeds it on any


@functools.lru_cache(maxsize=None)
def lack():
    """Why this CPU computes no bf16, in op_test's words; None: it does."""
    done = subprocess.run([program("tests/conformance/op_test"), "cpu", "bf16", "Abs"], capture_output=True, text=True,
                          check=False)
    return next((line.split("# SKIP", 1)[1].strip() for line in done.stdout.splitlines() if "# SKIP" in line), None)


def skip_without_bf16():
    if lack():
        raise Skip(lack())


def run_suite(name, *arguments, least):
    """Fails with what failed, or if there are fewer results."""
    skip_without_bf16()
    done = subprocess.run([program(f"tests/conformance/{name}"), "cpu", "bf16", *arguments], capture_output=True, text=True,
                          timeout=PATIENCE * 5, check=False)
    told = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    passed = re.search(r"^# (\d+) passed, 0 failed", done.stdout, re.M)
    assert done.returncode == 0 and passed and int(passed.group(1)) >= least, "\n".join(
        [f"ended with {done.returncode}", *told[-20:], *done.stderr.splitlines()[-20:]])


def write_spec(folder, precision, steps=40, deterministic=True):
    folder.small_data(960, 300)
    with open(folder.small_spec("lenet.onnx", 6, steps, 20)) as file:
        text = file.read().replace("  seed: 3\n", f"  seed: 3\n  precision: {precision}\n"
                                   f"  deterministic: {str(deterministic).lower()}\n")
    return folder.file(f"{precision}-{deterministic}.yaml", text)


def train(folder, spec, name, *options, **process):
    """The event that ends the run."""
    weir("train", spec, "--out", folder.file(name), *options, **process)
    return done_event(folder.file(f"{name}/metrics.jsonl"))


def parameter_servers(training):
    """pids of those that a `weir train` has started."""
    def is_one(pid):
        with open(f"/proc/{pid}/cmdline") as command:
            return "--role=parameters" in command.read()
    return [pid for pid in children_of(training, "weir-server") if is_one(pid)]


def test_every_op_agrees():
    run_suite("op_test", least=150)


def test_every_op_agrees_on_tensors_that_are_kept_in_bf16():
    run_suite("op_test", "inner", least=150)


def test_nodes_that_are_done_together_agree():
    run_suite("fusion_test", least=8)


def test_what_is_computed_again_has_the_same_bits():
    run_suite("recompute_test", least=50)


def test_parts_of_executions_have_the_bits_of_whole_ones():
    run_suite("context_test", "few", least=45)


def test_stages_have_the_bits_of_the_uncut_program():
    run_suite("stage_test", "few", least=50)


def test_any_cluster_ends_in_the_same_weights():
    skip_without_bf16()
    with Folder() as folder:
        folder.model(*MODEL)
        spec = write_spec(folder, "bf16")
        runs = {shape: train(folder, spec, "-".join(map(str, shape)), "--workers", shape[0], "--servers", shape[1],
                             "--threads", shape[2]) for shape in ((1, 1, 1), (2, 2, 1), (1, 2, 3))}
        hashes = {shape: run["weights_sha256"] for shape, run in runs.items()}
        assert len(set(hashes.values())) == 1, hashes
        whole = train(folder, write_spec(folder, "fp32"), "fp32")
        assert whole["weights_sha256"] not in hashes.values(), "bf16 computes what fp32 does"
        assert abs(whole["accuracy"] - runs[1, 1, 1]["accuracy"]) < 0.1, (whole, runs)


def test_kills_change_nothing():
    skip_without_bf16()
    with Folder() as folder:
        folder.model(*MODEL)
        spec = write_spec(folder, "bf16")
        calm = train(folder, spec, "calm")["weights_sha256"]
        gate = Gate(folder)
        for victim, find in ("worker", lambda pid: children_of(pid, "weir-worker")), ("server", parameter_servers):
            gate.stop_at(10)
            with Process(program("weir"), "train", spec, "--workers", 2, "--servers", 2, "--threads", 1, "--out",
                         folder.file(victim), env=gate.environment) as training:
                metrics = folder.file(f"{victim}/metrics.jsonl")
                wait_for(lambda: newest_step(metrics) >= 5, "step 5")
                os.kill(find(training.child.pid)[0], signal.SIGKILL)
                gate.open()
                assert training.wait() == 0, training.output()[-3000:]
            assert done_event(metrics)["weights_sha256"] == calm, f"a {victim} that was killed changes the weights"


def test_a_cpu_without_bf16_is_refused_with_what_it_has():
    with Folder() as folder:
        folder.model(*MODEL)
        older = {**os.environ, **OLDER}
        done = subprocess.run([program("weir"), "train", write_spec(folder, "bf16"), "--out", folder.file("refused")],
                              capture_output=True, text=True, timeout=PATIENCE, check=False, env=older)
        assert done.returncode == 2 and re.search(
            r"this CPU has \w+, without instructions for bf16 \(AVX512-BF16, AMX\): train.precision bf16 needs other CPUs, "
            r"GPUs, or train.deterministic: false", done.stderr), done.stderr
        follows = train(folder, write_spec(folder, "bf16", deterministic=False), "follows", env=older)
        whole = train(folder, write_spec(folder, "fp32"), "whole", env=older)
        assert follows["weights_sha256"] == whole["weights_sha256"], "it computes in fp32"


def test_a_cpu_without_bf16_is_not_mixed_with_one_that_has_it():
    skip_without_bf16()
    with Folder() as folder, Cluster(folder, workers=1) as cluster:
        folder.model(*MODEL)
        spec = write_spec(folder, "bf16", steps=2000000)
        run = weir("submit", spec, "--coordinator", cluster.address).stdout.strip()

        def states():
            return {worker["state"]: worker["message"] for worker in cluster.json("workers")}
        wait_for(lambda: "ready" in states(), "the run on the CPU with bf16")
        cluster.add_worker(env={**os.environ, **OLDER})
        message = wait_for(lambda: states().get("refused"), "a refusal")
        assert "without instructions for bf16" in message, message
        weir("cancel", run, "--coordinator", cluster.address)


main(globals())
