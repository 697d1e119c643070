#!/usr/bin/env python3
"""precision: bf16 on CPUs: every op agrees with its reference, any cluster ends in the same weights, and a CPU without the
instructions for it says so or, where bits may differ, computes in fp32."""
import functools
import os
import re
import signal
import subprocess

from gate import Gate
from harness import (PATIENCE, Cluster, Folder, Process, Skip, children_of, done_event, kept, main, newest_step, program,
                     wait_for, weir)

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


def transport(shm):
    """An environment in which blocks go by socket ("off") or, where they can, by name in shared memory."""
    return {**os.environ, "WEIR_SHM": shm}


def shares_memory(folder, name):
    """Whether servers found gradients in it, by what they log of a run at its end."""
    logs = folder.file(f"{name}/logs")
    texts = []
    for log in os.listdir(logs):
        with open(os.path.join(logs, log)) as file:
            texts.append(file.read())
    named = re.findall(r" shared_gradients=(\d+)", "\n".join(texts))
    assert named, "no server says what became of the run"
    return any(map(int, named))


def undisturbed():
    """The event that ends a run of one worker, whose blocks all go by socket."""
    def make():
        with Folder() as folder:
            folder.model(*MODEL)
            return train(folder, write_spec(folder, "bf16"), "calm", "--threads", 1, env=transport("off"))
    return kept("bf16", make)


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
    calm = undisturbed()
    with Folder() as folder:
        folder.model(*MODEL)
        spec = write_spec(folder, "bf16")
        for workers, servers, threads, shm in (1, 1, 3, "on"), (2, 3, 1, "off"), (3, 2, 1, "on"), (4, 3, 1, "on"), (4, 1, 1, "off"):
            name = f"{workers}-{servers}-{threads}-{shm}"
            done = train(folder, spec, name, f"workers.min={workers}", "--workers", workers, "--servers", servers, "--threads", threads,
                         env=transport(shm))
            assert done["weights_sha256"] == calm["weights_sha256"], name
            assert shares_memory(folder, name) == (shm == "on"), name
        whole = train(folder, write_spec(folder, "fp32"), "fp32")
        assert whole["weights_sha256"] != calm["weights_sha256"], "bf16 computes what fp32 does"
        assert abs(whole["accuracy"] - calm["accuracy"]) < 0.1, (whole, calm)


def test_a_transformer_too_ends_in_the_same_weights_on_any_cluster():
    skip_without_bf16()
    with Folder() as folder:
        folder.model("vit", "--input", "1,28,28", "--classes", "10", "--patch", "7", "--width", "32", "--depth", "2", "--heads", "2",
                     "--seed", "3")
        folder.small_data(240, 12)
        with open(folder.small_spec("vit.onnx", 5, 6, 6)) as file:
            spec = folder.file("vit.yaml", file.read().replace("  seed: 3\n", "  seed: 3\n  precision: bf16\n"))
        hashes = [train(folder, spec, f"{workers}-{shm}", f"workers.min={workers}", "--workers", workers, "--servers", servers,
                        "--threads", 1, env=transport(shm))["weights_sha256"] for workers, servers, shm in ((1, 1, "off"), (3, 2, "on"))]
        assert len(set(hashes)) == 1, hashes


def kill(victim, shm):
    """Whether a worker or a server that dies in mid-run leaves no trace in the weights."""
    skip_without_bf16()
    calm = undisturbed()["weights_sha256"]
    find = parameter_servers if victim == "server" else lambda pid: children_of(pid, "weir-worker")
    with Folder() as folder:
        folder.model(*MODEL)
        gate, metrics = Gate(folder), folder.file(f"{victim}/metrics.jsonl")
        gate.stop_at(10)
        with Process(program("weir"), "train", write_spec(folder, "bf16"), "--workers", 3, "--servers", 2, "--threads", 1, "--out",
                     folder.file(victim), env={**gate.environment, "WEIR_SHM": shm}) as training:
            wait_for(lambda: newest_step(metrics) >= 5, "step 5")
            os.kill(find(training.child.pid)[0], signal.SIGKILL)
            gate.open()
            assert training.wait() == 0, training.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == calm, f"a {victim} that was killed changes the weights"
        assert shares_memory(folder, victim) == (shm == "on")


def test_a_worker_that_is_killed_changes_nothing_on_sockets():
    kill("worker", "off")


def test_a_worker_that_is_killed_changes_nothing_in_shared_memory():
    kill("worker", "on")


def test_a_server_that_is_killed_changes_nothing_on_sockets():
    kill("server", "off")


def test_a_server_that_is_killed_changes_nothing_in_shared_memory():
    kill("server", "on")


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
