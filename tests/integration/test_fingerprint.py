#!/usr/bin/env python3
"""Members whose C library computes other last bits are of another kind: refused with both named, through roll-backs and
other coordinators. The C library's own setting makes such members of this machine's programs."""
import ctypes
import ctypes.util
import os
import re
import signal
import subprocess

from gate import Gate
from harness import (ROOT, Cluster, Folder, Process, Skip, done_event, main, newest_step, program, wait_for, weir)

LIBM = re.compile(r"libm ([0-9a-f]{16})")
# Exact, or rounded correctly: the same everywhere.
EXACT = {"ceil", "ceilf", "floor", "floorf", "rint", "rintf", "nearbyint", "nearbyintf", "round", "roundf", "trunc",
         "truncf", "fmod", "fmodf", "sqrt", "sqrtf", "fmax", "fmaxf", "fmin", "fminf", "lrint", "lrintf",
         "fma", "fmaf", "nextafter", "nextafterf"}


def other_libm():
    """An environment in which libm computes without fused multiply-add; a skip where it would not do so anyway."""
    with open("/proc/cpuinfo") as info:
        if not re.search(r"^flags\s*:.* fma( |$)", info.read(), re.MULTILINE):
            raise Skip("this CPU has no fused multiply-add")
    return {**os.environ, "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA"}


def model_and_spec(folder, steps, train=""):
    folder.small_data(1200, 300)
    folder.model("mlp", "--hidden", "32")
    path = folder.small_spec("mlp.onnx", 8, steps, steps)
    with open(path) as file:
        return folder.file(f"spec{len(train)}.yaml", file.read().replace("train:\n  steps", f"train:\n{train}  steps"))


def wait_for_members(cluster, what, count):
    wait_for(lambda: len(cluster.json(what)) == count, f"{count} {what}")


def assert_two_kinds(message):
    assert len(set(LIBM.findall(message))) == 2, message


def test_a_server_with_another_libm_is_refused_for_the_life_of_the_run():
    environment = other_libm()
    with Folder() as folder:
        spec = model_and_spec(folder, 400)
        weir("train", spec, "--out", folder.file("calm"), "--metrics", folder.file("calm.jsonl"))
        metrics = folder.file("run.jsonl")
        with Cluster(folder, servers=1, workers=1, gate=Gate(folder)) as cluster:
            cluster.gate.stop_at(100)
            wait_for_members(cluster, "servers", 1)
            cluster.add_server(env=environment)
            wait_for_members(cluster, "servers", 2)
            with Process(program("weir"), "submit", spec, "--follow", "--coordinator", cluster.address, "--metrics",
                         metrics) as client:
                wait_for(lambda: newest_step(metrics) >= 3, "step 3")
                first, second = cluster.json("servers")
                assert first["blocks"] > 0 and second["blocks"] == 0
                assert "server-2" in second["message"] and "server-1" in second["message"]
                assert_two_kinds(second["message"])
                cluster.coordinator.send(signal.SIGKILL)
                cluster.coordinator.wait()
                cluster.start_coordinator()
                wait_for_members(cluster, "servers", 2)
                cluster.servers[0][0].send(signal.SIGKILL)
                cluster.gate.open()
                found = wait_for(lambda: [run["message"] for run in cluster.json("runs") if "waiting for a server" in run["message"] and
                                          "server-2" in run["message"] and "server-1" in run["message"]], "the run to wait")[0]
                assert_two_kinds(found)
                cluster.add_server()
                assert client.wait() == 0, client.output()[-2000:]
        assert done_event(metrics)["weights_sha256"] == done_event(folder.file("calm.jsonl"))["weights_sha256"]


def test_a_worker_with_another_libm_is_refused():
    environment = other_libm()
    with Folder() as folder:
        spec = model_and_spec(folder, 20)
        with Cluster(folder, servers=1, workers=1) as cluster:
            with Process(program("weir"), "submit", spec, "--follow", "--coordinator", cluster.address) as client:
                assert client.wait() == 0, client.output()[-2000:]
            wait_for_members(cluster, "workers", 1)
            with open(spec) as file:
                longer = folder.file("two.yaml", file.read().replace("steps: 20", "steps: 100000000"))
            run = weir("submit", longer, "--coordinator", cluster.address).stdout.strip()
            wait_for(lambda: [it for it in cluster.json("runs") if it["run"] == run and it["workers"] == 1], "a worker")
            cluster.add_worker(env=environment)
            refused = wait_for(lambda: [worker for worker in cluster.json("workers") if worker["state"] == "refused"], "a refusal")[0]
            assert_two_kinds(refused["message"])
            weir("cancel", run, "--coordinator", cluster.address)


def test_a_run_that_need_not_be_deterministic_takes_servers_of_any_kind():
    environment = other_libm()
    with Folder() as folder:
        spec = model_and_spec(folder, 20, "  deterministic: false\n")
        with Cluster(folder, servers=1, workers=1) as cluster:
            cluster.add_server(env=environment)
            wait_for_members(cluster, "servers", 2)
            run = weir("submit", spec, "--follow", "--coordinator", cluster.address).stdout
            assert run
            assert " server_refused " not in cluster.coordinator.output()


def libm_functions(path):
    """What a program takes of libm, by its symbol table."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    libc = ctypes.CDLL(ctypes.util.find_library("c"))
    listed = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True).stdout
    names = {name.split("@")[0] for name in re.findall(r" U (\S+)", listed)}
    return {name for name in names if hasattr(libm, name) and not hasattr(libc, name)}


def test_every_inexact_function_that_members_call_is_in_the_hash():
    with open(os.path.join(ROOT, "common", "agree", "libm.c")) as file:
        rows = set(re.findall(r"\.(?:power_)?f(?:64|32) = (\w+?)(?:_both)?}", file.read()))
    for name in ("weir-server", "weir-worker"):
        called = libm_functions(program(name))
        assert "exp" in called, called
        assert called - EXACT <= rows, f"{name} calls {sorted(called - EXACT - rows)}, of which libm.c has no row"


if __name__ == "__main__":
    main(globals())
