"""Our kernels under NVIDIA's compute-sanitizer: memory, uninitialised reads, races in shared memory."""
import os
import shutil
import subprocess

import gpu  # noqa: F401
from harness import Skip, main, program, skip_unless_gpu

CUDA_HOME = os.environ.get("CUDA_HOME", "/usr/local/cuda")


def sanitizer():
    path = shutil.which("compute-sanitizer") or os.path.join(CUDA_HOME, "bin", "compute-sanitizer")
    if not os.path.exists(path):
        raise Skip("compute-sanitizer is not installed")
    return path


def run_tool(tool):
    skip_unless_gpu()
    command = [sanitizer(), "--tool", tool, "--error-exitcode", "9", program("tests/conformance/op_test"), "cuda"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if "Device not supported" in done.stdout:
        raise Skip("compute-sanitizer cannot look into this machine's device")
    found = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    assert done.returncode == 0, "\n".join(found[:40] or done.stdout.splitlines()[-40:])


def test_no_access_is_out_of_bounds():
    run_tool("memcheck")


def test_nothing_is_read_before_it_is_written():
    run_tool("initcheck")


def test_no_race_is_in_shared_memory():
    run_tool("racecheck")


def test_barriers_are_reached_by_all():
    run_tool("synccheck")


if __name__ == "__main__":
    main(globals())
