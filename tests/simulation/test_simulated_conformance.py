#!/usr/bin/env python3
"""The conformance suites on the cuda backend, on a simulated device: every op in every precision, ONNX's vectors, with
several seeds of the orders that CUDA leaves open. It shows that the backend is right about shapes, layouts, buffers,
waits and captures; not what NVIDIA's libraries and a GPU's arithmetic make of them (`make gpu-check` does)."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from harness import PATIENCE, SIMULATED, Skip, main, program  # noqa: E402



def run_suite(name, *arguments, seed=1, least=100, settings=None):
    """Fails with what failed; so it does when fewer than `least` results are there, as of a device that is skipped.
    Returns the log."""
    if not os.path.exists(SIMULATED):
        raise Skip("there is no simulated device: CUDA's headers are missing")
    done = subprocess.run([program(f"tests/conformance/{name}"), "cuda", *arguments], capture_output=True, text=True,
                          timeout=PATIENCE * 5, check=False,
                          env=dict(os.environ, WEIR_CUDA=SIMULATED, WEIR_SIMULATED_SEED=str(seed), **(settings or {})))
    told = [line for line in done.stdout.splitlines() if not line.startswith("ok ") or "# SKIP '" in line]
    passed = re.search(r"^# (\d+) passed, 0 failed", done.stdout, re.M)
    assert done.returncode == 0 and passed and int(passed.group(1)) >= least, "\n".join(
        [f"seed {seed}, ended with {done.returncode}", *told[-20:], *done.stderr.splitlines()[-20:]])
    return done.stderr


def test_every_op_agrees_with_its_reference():
    for seed in 1, 2, 3:
        run_suite("op_test", seed=seed)


def test_every_op_agrees_in_bf16():
    for seed in 4, 5:
        run_suite("op_test", "bf16", seed=seed)


def test_every_op_agrees_in_tf32():
    for seed in 6, 7:
        run_suite("op_test", "tf32", seed=seed)


def test_nodes_that_are_done_together_agree():
    for seed, precision in enumerate(("fp32", "tf32", "bf16"), 10):
        run_suite("fusion_test", precision, seed=seed, least=8)


def test_what_is_computed_again_has_the_same_bits():
    for seed, precision in enumerate(("fp32", "tf32", "bf16"), 16):
        run_suite("recompute_test", precision, seed=seed, least=50)


def test_parts_of_executions_have_the_bits_of_whole_ones():
    for seed, precision in enumerate(("fp32", "bf16"), 19):
        run_suite("context_test", precision, "few", seed=seed, least=45)


def test_stages_have_the_bits_of_the_uncut_program():
    for seed, precision in enumerate(("fp32", "bf16"), 22):
        run_suite("stage_test", precision, "few", seed=seed, least=50)


def test_attention_of_whole_heads_is_fused():
    log = run_suite("fusion_test", "bf16", seed=13, least=8, settings={"WEIR_LOG": "debug"})
    for attention_pass in "forward", "backward":
        assert len(re.findall(f"attention_plan .*pass={attention_pass} .*is_fused=1", log)) >= 3, log
    assert "attention_not_fused" not in log, log


def test_attention_that_disagrees_with_ours_is_not_used():
    log = run_suite("fusion_test", "bf16", seed=14, least=8, settings={"WEIR_SIMULATED_ATTENTION": "wrong"})
    for attention_pass in "forward", "backward":
        assert len(re.findall(f"warn worker attention_not_fused .*pass={attention_pass} .*differ by", log)) >= 3, log


def test_attention_without_engines_goes_on_without_a_word():
    log = run_suite("fusion_test", "bf16", seed=15, least=8, settings={"WEIR_SIMULATED_ATTENTION": "none"})
    assert "attention" not in log, log


def test_onnx_vectors_pass():
    for seed in 8, 9:
        run_suite("onnx_test", seed=seed)


def test_memory_of_devices_is_copied_and_added():
    if not os.path.exists(SIMULATED):
        raise Skip("there is no simulated device: CUDA's headers are missing")
    for devices, seed in (1, 13), (3, 14):
        done = subprocess.run([program("tests/conformance/device_memory_test")], capture_output=True, text=True,
                              timeout=PATIENCE * 5, check=False,
                              env=dict(os.environ, WEIR_CUDA=SIMULATED, WEIR_SIMULATED_DEVICES=str(devices),
                                       WEIR_SIMULATED_SEED=str(seed), CMOCKA_MESSAGE_OUTPUT="TAP"))
        passed = re.findall(r"^ok \d+ - (?!.*# SKIP)", done.stdout, re.M)
        assert done.returncode == 0 and len(passed) >= 7, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_collective_of_gpus_does_what_every_collective_does():
    if not os.path.exists(SIMULATED):
        raise Skip("there is no simulated device: CUDA's headers are missing")
    for name, least in ("collective_test", 7), ("collective_life_test", 10):
        done = subprocess.run([program(f"tests/conformance/{name}"), "nccl"], capture_output=True, text=True,
                              timeout=PATIENCE * 5, check=False,
                              env=dict(os.environ, WEIR_CUDA=SIMULATED, WEIR_SIMULATED_DEVICES="8",
                                       WEIR_SIMULATED_SEED="12", CMOCKA_MESSAGE_OUTPUT="TAP"))
        passed = re.findall(r"^ok \d+ - nccl: ", done.stdout, re.M)
        assert done.returncode == 0 and len(passed) >= least, done.stdout[-3000:] + done.stderr[-3000:]


main(globals())
