#!/usr/bin/env python3
"""Workers on GPUs: --device, machines without one, devices that are full or fail, runs on GPUs and CPUs together. The
devices are made up: a stand-in that computes on the CPU (fake_cuda.c) for what the cluster makes of devices, and
simulated ones (tests/simulation/cuda), which run the backend's own code, for the numbers."""
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess

from gate import Gate
from harness import (BUILD, PATIENCE, Cluster, Folder, done_event, made_up_gpus, main, program, read_metrics,
                     simulated_gpus, wait_for, weir)

FAKE = os.path.join(BUILD, "tests", "fake_cuda.so")
NOT_HERE = "there is no NVIDIA GPU here, says the fake"
BOTH = "workers.min=2"  # or a run may be over before the second worker has loaded it


def fake(**settings):
    """An environment with made-up devices; settings: of fake_cuda.c."""
    return made_up_gpus(FAKE, "FAKE_CUDA", settings)


def refusal(device, environment):
    """The line with which a worker refuses to start on this device."""
    done = subprocess.run([program("weir-worker"), "--device", device], capture_output=True, text=True, timeout=PATIENCE,
                          env=environment)
    assert done.returncode == 2 and not done.stdout and len(done.stderr.splitlines()) == 1, done
    assert done.stderr.startswith(f"weir-worker: --device {device}: "), done.stderr
    return done.stderr


def small_spec(folder, steps=6, microbatches=2, train="", model=("lenet",)):
    """On a little data; train: further lines of that section."""
    folder.small_data(240, 60)
    path = folder.small_spec(folder.model(*model), microbatches, steps, steps)
    with open(path) as file:
        text = file.read()
    return folder.file("device-spec.yaml", text.replace("  seed: 3\n", f"  seed: 3\n{train}"))


def train(folder, spec, name, *options, status=0, env=None):
    """Trains on a private cluster; returns the finished process and the file of its metrics."""
    out = folder.file(name)
    done = weir("train", spec, "--out", out, "--threads", 2, *options, status=status, env=env)
    return done, os.path.join(out, "metrics.jsonl")


def losses(metrics):
    return [event["loss"] for event in read_metrics(metrics) if event["event"] == "step"]


def log_of_workers(out):
    logs = os.path.join(out, "logs")
    texts = []
    for name in sorted(os.listdir(logs)):
        if "worker" in name:
            with open(os.path.join(logs, name)) as file:
                texts.append(file.read())
    return "".join(texts)


def worker_states(cluster):
    return {worker["state"]: worker for worker in cluster.json("workers")}


def submit(cluster, spec):
    return weir("submit", spec, "--coordinator", cluster.address).stdout.strip()


def is_done(cluster, run):
    state = cluster.json("status", run)["state"]
    assert state not in ("failed", "cancelled"), cluster.json("status", run)
    return state == "done"


def test_a_worker_without_the_gpu_that_it_was_asked_for_says_so_and_exits():
    assert NOT_HERE in refusal("cuda", fake(devices=0))
    with Folder() as folder:
        missing = folder.file("nowhere.so")
        assert missing in refusal("cuda", dict(os.environ, WEIR_CUDA=missing))
        damaged = folder.file("damaged.so", "this is no library")
        assert "cannot be loaded" in refusal("cuda", dict(os.environ, WEIR_CUDA=damaged))
        other = folder.file("other.so")
        subprocess.run(["gcc", "-shared", "-o", other, "-xc", "/dev/null"], check=True)
        assert "exports no weir_plugin" in refusal("cuda", dict(os.environ, WEIR_CUDA=other))
        source = folder.file("rounding.c", "#include <fenv.h>\n__attribute__((constructor)) "
                                           "static void begin(void) { fesetround(FE_UPWARD); }\n")
        rounding = folder.file("rounding.so")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", rounding, source, "-lm"], check=True)
        line = refusal("cuda", dict(os.environ, WEIR_CUDA=rounding))
        assert f"'{rounding}' changed the floating-point setting from 0x" in line, line
        needy = folder.file("needy.so")
        subprocess.run(["gcc", "-shared", "-o", folder.file("libcudnn.so.99"), "-Wl,-soname,libcudnn.so.99", "-xc",
                        "/dev/null"], check=True)
        subprocess.run(["gcc", "-shared", "-o", needy, "-xc", "/dev/null", "-xnone", "-Wl,--no-as-needed",
                        folder.file("libcudnn.so.99")], check=True)
        line = refusal("cuda", dict(os.environ, WEIR_CUDA=needy))
        assert "libcudnn.so.99: cannot open" in line and "install cuDNN 9 for CUDA 13" in line, line
    assert "interface 0" in refusal("cuda", fake(abi=0))


def test_a_plugin_that_is_no_library_is_refused():
    with Folder() as folder:
        with open(program("weir-worker"), "rb") as file:
            cut_off = file.read(5000)  # of a file of the same format
        folder.file("cut", cut_off)
        folder.file("empty", b"")
        folder.file("text", b"a text\n" * 999)
        folder.file("narrow", cut_off[:4] + b"\x01" + cut_off[5:])  # as if of 32 bits
        os.mkfifo(folder.file("pipe"))
        for name, told in (("cut", "is cut off"), ("empty", "file too short"), ("text", "invalid ELF header"),
                           ("narrow", "wrong ELF class"), ("pipe", "is not a file"), ("", "is not a file")):
            for named in folder.file(name), name:  # also as seen from the folder that it is in
                done = subprocess.run([program("weir-worker"), "--device", "cuda"], capture_output=True, text=True,
                                      check=False, env=dict(os.environ, WEIR_CUDA=named or "."), cwd=folder.path,
                                      timeout=PATIENCE)
                assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1, (named, done)


def test_a_plugin_that_is_only_found_is_not_loaded_without_a_driver():
    try:
        told = ctypes.CDLL("libcuda.so.1") and "invalid ELF header"
    except OSError:
        told = "there is no NVIDIA driver on this machine"
    with Folder() as folder:
        shutil.copy(program("weir-worker"), folder.path)
        folder.file("weir-cuda.so", b"a text\n" * 999)
        done = subprocess.run([folder.file("weir-worker"), "--device", "cuda"], capture_output=True, text=True, check=False,
                              env={name: os.environ[name] for name in os.environ if name != "WEIR_CUDA"}, timeout=PATIENCE)
        assert done.returncode == 2 and told in done.stderr, done


def test_a_device_that_is_none_is_refused():
    two = fake(devices=2)
    for device in ("gpu", "cuda:", "cuda:x", "cuda:0,", "cuda:,1", "cuda:-1", "cuda:0 ,1", "cuda:0;1", "cuda0", "cuda:1234"):
        assert "a device is cpu, cuda" in refusal(device, two)
    assert "this machine has 2 GPUs: 0 and 1" in refusal("cuda:2", two)
    assert "this machine has 1 GPU: 0" in refusal("cuda:0,1", fake())
    assert "this machine has 3 GPUs: 0 to 2" in refusal("cuda:0,7", fake(devices=3))
    assert "GPU 1 is named twice" in refusal("cuda:1,0,1", two)


def test_train_gives_the_line_of_a_worker_that_cannot_work_here_as_its_own_error():
    with Folder() as folder:
        spec = small_spec(folder)
        done, _ = train(folder, spec, "out", "--device", "cuda", status=2, env=fake(devices=0))
        assert done.stderr.splitlines() == [f"weir: --device cuda: {NOT_HERE}"], done.stderr


def test_workers_compute_on_the_gpus_that_they_are_given():
    with Folder() as folder:
        spec = small_spec(folder)
        _, cpu = train(folder, spec, "cpu")
        _, both = train(folder, spec, "both", "--device", "cuda:0,1", env=fake(devices=2))
        _, dealt = train(folder, spec, "dealt", BOTH, "--device", "cuda:0,1", "--workers", 2, env=fake(devices=2))
        _, all_there_are = train(folder, spec, "auto", "--device", "auto", env=fake(devices=2))
        _, none = train(folder, spec, "none", "--device", "auto", env=fake(devices=0))
        hashes = {done_event(metrics)["weights_sha256"] for metrics in (cpu, both, dealt, all_there_are, none)}
        assert len(hashes) == 1, hashes
        assert hashes.pop() in weir("eval", folder.file("cpu"), "--device", "cuda:1", env=fake(devices=2)).stdout
        done = weir("eval", folder.file("cpu"), "--device", "cuda:2", env=fake(devices=2), status=2)
        assert done.stderr.startswith("weir: --device cuda:2: there is no GPU 2"), done.stderr
        for name, expected in (("both/logs/worker-1", {"0", "1"}), ("dealt/logs/worker-1", {"0"}),
                               ("dealt/logs/worker-2", {"1"}), ("auto/logs/worker-1", {"0", "1"}),
                               ("none/logs/worker-1", set())):
            with open(folder.file(name + ".log")) as log:
                lines = log.read().splitlines()
            used = {line.split("device=")[1].split()[0] for line in lines if "fake prepared" in line}
            assert used == expected, (name, used)
        assert any("device chosen=cpu" in line and NOT_HERE in line for line in lines), lines


def test_gpus_and_cpus_compute_one_run_only_where_it_need_not_be_deterministic():
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        gpu = cluster.add_worker(options=("--device", "cuda"), env=fake())
        wait_for(lambda: cluster.json("workers"), "the worker on the GPU")
        strict = submit(cluster, small_spec(folder, steps=2000000))
        wait_for(lambda: "ready" in worker_states(cluster), "the run on the GPU")
        cluster.add_worker()
        message = wait_for(lambda: worker_states(cluster).get("refused"), "a refusal")["message"]
        assert "cuda: fake on Fake GPU" in message and "cpu: oneDNN" in message, message
        assert "train.deterministic false" in message, message
        cluster.add_worker(options=("--device", "cuda:0,1,2"), env=fake(devices=3, others=" NVL"))
        message = wait_for(lambda: next((worker["message"] for worker in cluster.json("workers")
                                         if worker["device"] == "cuda:0,1,2" and worker["message"]), None), "another")
        assert "cuda: fake on Fake GPU, Fake GPU NVL, libm " in message, message
        weir("cancel", strict, "--coordinator", cluster.address)
        spec = small_spec(folder, steps=40, train="  deterministic: false\n  precision: bf16\n")
        with open(spec, "a") as file:
            file.write("workers: {min: 3}\n")  # or it may be over before the last has come
        free = submit(cluster, spec)
        wait_for(lambda: is_done(cluster, free), "the end of the run")
        assert "is_fast=1" in gpu.output() and "precision=2" in gpu.output(), gpu.output()
        assert all(" worker loaded run=" + free in worker.output() for worker in cluster.workers)


def test_what_a_cpu_cannot_do_is_refused_by_its_worker():
    with Folder() as folder:
        for key, value in (("precision", "tf32"), ("collective", "nccl")):
            spec = small_spec(folder, train=f"  {key}: {value}\n")
            done, _ = train(folder, spec, key, status=2)
            assert f"train.{key} {value} needs GPUs, or train.deterministic: false" in done.stderr, done.stderr
        spec = small_spec(folder, train="  precision: tf32\n  deterministic: false\n")
        train(folder, spec, "admitted")
        assert "computation    tf32, not deterministic; collective auto" in weir("inspect", spec).stdout
        assert json.loads(weir("inspect", spec, "--json").stdout)["computation"] == {
            "precision": "tf32", "deterministic": False, "collective": "auto"}


def test_a_device_that_is_full_names_the_microbatch_that_fits():
    with Folder() as folder:
        with open(small_spec(folder)) as file:
            large = file.read().replace("batch: 24", "batch: 240")
        for microbatches, limit, text in (
                (2, {"memory": 4 << 20}, "the run needs 8 MiB on cuda:0 (8 MiB of activations, 0 MiB of weights), which has "
                             "4 MiB: microbatches of 48 samples would fit (train.microbatches: 5)"),
                (2, {"samples": 60}, "of device memory: microbatches of 60 samples would fit (train.microbatches: 4)"),
                (4, {"samples": 60}, None)):  # the first is refused by estimate, the second by the device
            spec = folder.file("large.yaml", large.replace("microbatches: 2", f"microbatches: {microbatches}"))
            done, _ = train(folder, spec, "-".join([str(microbatches), *limit]), "--device", "cuda",
                            status=2 if text else 0, env=fake(**limit))
            assert not text or text in done.stderr, done.stderr


def test_when_a_device_fails_its_worker_leaves_and_the_run_goes_on():
    with Folder() as folder, Cluster(folder, workers=0, is_patient=True, gate=Gate(folder)) as cluster:
        spec = small_spec(folder, steps=100)
        cluster.gate.stop_at(20)
        broken = folder.file("broken")
        worker = cluster.add_worker(options=("--device", "cuda"), env=fake(broken=broken))
        run = submit(cluster, spec)
        wait_for(lambda: cluster.json("status", run)["step"] > 3, "some steps on the device")
        folder.file("broken", "")
        cluster.gate.open()
        assert worker.wait() == 1, worker.output()
        assert "the fake device is broken" in worker.output(), worker.output()
        assert cluster.json("status", run)["state"] == "running"
        os.remove(broken)
        cluster.add_worker(options=("--device", "cuda"), env=fake(broken=broken))
        wait_for(lambda: is_done(cluster, run), "the end of the run")


def test_a_simulated_gpu_trains_as_the_cpu_does_and_gives_the_same_bits_each_time():
    environment = simulated_gpus()
    with Folder() as folder:
        spec = small_spec(folder)
        _, cpu = train(folder, spec, "cpu")
        metrics = [train(folder, spec, name, "--device", device, env=environment)[1]
                   for name, device in (("first", "cuda"), ("second", "cuda:1"), ("both", "cuda:0,1"))]
        for loss, expected in zip(losses(metrics[0]), losses(cpu), strict=True):
            assert abs(loss - expected) < 1e-4, (losses(metrics[0]), losses(cpu))
        hashes = [done_event(path)["weights_sha256"] for path in metrics]
        assert hashes == hashes[:1] * 3 and done_event(cpu)["weights_sha256"] != hashes[0], hashes


def check_group(folder, name):
    """Its two workers worked as groups of both to the end: new ones where shares changed, as a busy machine makes workers
    differ in speed. That one is refused would go unseen in the bits, as the other goes on."""
    for worker in 1, 2:
        with open(folder.file(f"{name}/logs/worker-{worker}.log")) as log:
            told = log.read()
        groups = re.findall(r" worker group run=.* size=(\d+) error=(.*)", told)
        ended = set(re.findall(r" group_ended .* error=(.*)", told))  # of one that had its next view later than the other
        assert set(groups) == {("2", '""')} and ended <= {'"the collective group was aborted"'} and " refused " not in told, told


def test_gpus_of_one_worker_and_of_a_group_give_the_bits_of_one():
    """With shares of three microbatches of six, a member has parts that are no node of the tree together. The model has
    two buckets of several blocks, so that each member owns one."""
    environment = simulated_gpus(devices=4)
    with Folder() as folder:
        def wide_spec(microbatches, train=""):
            with open(small_spec(folder, steps=2, microbatches=microbatches, train=train)) as file:
                text = file.read()
            model = folder.model("mlp", "--hidden", "2800")
            return folder.file("wide.yaml", re.sub(r"onnx: [^,}]*", f"onnx: {model}", text))

        spec = wide_spec(6)
        metrics = [train(folder, spec, name, "--device", device, env=environment)[1]
                   for name, device in (("one", "cuda"), ("four", "cuda:0,1,2,3"))]
        for collective in "nccl", "shm":
            spec = wide_spec(6, f"  collective: {collective}\n")
            metrics += [train(folder, spec, f"{collective}-{count}", BOTH, "--device", device, "--workers", 2, env=environment)[1]
                        for count, device in ((1, "cuda:0,1"), (2, "cuda:0,1,2,3"))]
            for count in 1, 2:
                check_group(folder, f"{collective}-{count}")
        hashes = [done_event(path)["weights_sha256"] for path in metrics]
        assert hashes == hashes[:1] * len(metrics), hashes
        spec = wide_spec(4, "  collective: nccl\n  deterministic: false\n")
        _, reduced = train(folder, spec, "reduced", BOTH, "--device", "cuda:0,1", "--workers", 2, env=environment)
        check_group(folder, "reduced")
        spec = wide_spec(4)
        _, alone = train(folder, spec, "alone", "--device", "cuda", env=environment)
        for loss, expected in zip(losses(reduced), losses(alone), strict=True):
            assert abs(loss - expected) < 1e-4, (losses(reduced), losses(alone))


def test_a_group_of_simulated_gpus_outlives_its_members():
    environment, model = simulated_gpus(devices=4), ("mlp", "--hidden", 100)
    with Folder() as folder, Cluster(folder, workers=0, gate=Gate(folder)) as cluster:
        _, undisturbed = train(folder, small_spec(folder, steps=16, microbatches=6, model=model), "undisturbed", "--device",
                               "cuda", env=environment)
        for device in "cuda:0,1", "cuda:2", "cuda:3":
            cluster.add_worker(options=("--device", device), env=environment)
        wait_for(lambda: len(cluster.json("workers")) == 3, "the workers")
        spec = small_spec(folder, steps=16, microbatches=6, train="  collective: nccl\n", model=model)
        with open(spec, "a") as file:
            file.write("workers: {min: 3}\n")
        cluster.gate.stop_at(4)
        run = submit(cluster, spec)
        wait_for(lambda: cluster.json("status", run)["step"] > 2, "some steps")
        cluster.workers[2].send(signal.SIGKILL)
        cluster.gate.stop_at(10)
        wait_for(lambda: cluster.workers[1].output().count(" worker group run=" + run) >= 2, "a group of two")
        wait_for(lambda: cluster.json("status", run)["step"] > 6, "steps of two")
        cluster.workers[0].send(signal.SIGKILL)
        cluster.gate.open()
        wait_for(lambda: is_done(cluster, run), "the end of the run")
        assert cluster.json("status", run)["weights_sha256"] == done_event(undisturbed)["weights_sha256"]


def test_training_goes_on_by_products_where_fused_attention_is_wrong():
    with Folder() as folder:
        model = folder.model("gpt", "--vocabulary", 40, "--context", 32, "--width", 32, "--depth", 1, "--heads", 2)
        folder.file("train.txt", "the quick brown fox jumps over the lazy dog. " * 30)
        spec = folder.file("gpt.yaml", f"""name: gpt
model: {{onnx: {model}, loss: cross_entropy}}
data: {{root: {folder.path}, train: {{format: text, file: train.txt, context: 32}}}}
train:
  steps: 4
  batch: 8
  microbatches: 2
  precision: bf16
  optimizer: {{name: sgd, lr: 0.1}}
""")
        metrics = [train(folder, spec, name, "--device", "cuda", env=simulated_gpus(attention=attention))[1]
                   for name, attention in (("fused", ""), ("left", "wrong"))]
        logs = [log_of_workers(folder.file(name)) for name in ("fused", "left")]
        assert "attention_not_fused" not in logs[0], logs[0]
        for attention_pass in "forward", "backward":
            line = f"warn worker attention_not_fused .*pass={attention_pass} rows=32 columns=32 head=16 causal=1"
            assert len(re.findall(line, logs[1])) == 1, logs[1]
        fused, left = map(losses, metrics)
        assert fused != left and all(abs(a - b) < 0.01 for a, b in zip(fused, left, strict=True)), (fused, left)


def test_a_simulated_gpu_shows_its_kernels_and_copies_on_the_timeline():
    with Folder() as folder:
        train(folder, small_spec(folder, steps=3), "out", "--device", "cuda", "--trace", folder.file("time.json"),
              env=simulated_gpus())
        with open(folder.file("time.json")) as file:
            events = json.load(file)
        names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        for step in range(3):
            rows = {names[event["tid"]].rstrip(" 0123456789") for event in events
                    if event["ph"] == "X" and event["args"]["step"] == step}
            assert {"executor", "GPU kernels", "copies to GPU", "copies from GPU", "sending"} <= rows, (step, rows)


def test_a_worker_on_a_gpu_that_is_ended_says_that_it_leaves():
    """Although the device's driver has a thread of its own."""
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        worker = cluster.add_worker(options=("--device", "cuda"), env=simulated_gpus())
        cluster.all_join()
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0, worker.output()
        assert " worker leaving " in worker.output(), worker.output()


def test_machines_without_a_driver_or_a_gpu_are_told_apart():
    for settings, text in (({"driver": "none"}, "there is no NVIDIA driver on this machine: install one"),
                           ({"driver": "old"}, "the NVIDIA driver is too old: it supports CUDA 11.8, 13.0 is needed"),
                           ({"devices": 0}, "there is no NVIDIA GPU that CUDA can use on this machine")):
        assert text in refusal("cuda", simulated_gpus(**settings))


def test_a_simulated_gpu_and_a_cpu_compute_one_run_together():
    environment = simulated_gpus()
    with Folder() as folder, Cluster(folder, workers=1) as cluster:
        cluster.add_worker(options=("--device", "cuda"), env=environment)
        wait_for(lambda: len(cluster.json("workers")) == 2, "both workers")
        run = submit(cluster, small_spec(folder, steps=20, train="  deterministic: false\n"))
        wait_for(lambda: is_done(cluster, run), "the end of the run")


def test_a_simulated_device_that_is_full_names_the_microbatch_that_fits():
    with Folder() as folder:
        with open(small_spec(folder, steps=1)) as file:
            large = file.read().replace("batch: 24", "batch: 240")
        for microbatches, memory, text in (
                (2, 4 << 20, "the run needs 8 MiB on cuda:0 (8 MiB of activations, 0 MiB of weights), which has "
                             "4 MiB: microbatches of 48 samples would fit (train.microbatches: 5)"),
                (2, 9 << 20, "9437184 are free on cuda:0: microbatches of 60 samples would fit (train.microbatches: 4)"),
                (4, 9 << 20, None)):
            spec = folder.file("large.yaml", large.replace("microbatches: 2", f"microbatches: {microbatches}"))
            done, _ = train(folder, spec, f"{microbatches}-{memory}", "--device", "cuda", status=2 if text else 0,
                            env=simulated_gpus(memory=memory))
            assert not text or text in done.stderr, done.stderr


def test_when_a_simulated_device_fails_the_run_ends_in_the_same_bits_on_another():
    environment = simulated_gpus()
    with Folder() as folder, Cluster(folder, workers=0, gate=Gate(folder)) as cluster:
        spec = small_spec(folder, steps=40)
        _, undisturbed = train(folder, spec, "undisturbed", "--device", "cuda", env=environment)
        failing = cluster.add_worker(options=("--device", "cuda"), env=simulated_gpus(fail=1000))
        cluster.add_worker(options=("--device", "cuda:1"), env=environment)
        wait_for(lambda: len(cluster.json("workers")) == 2, "both workers")
        with open(spec, "a") as file:
            file.write("workers: {min: 2}\n")
        cluster.gate.stop_at(8)  # or the other worker may end it alone, where this one stands still for a while
        run = submit(cluster, spec)
        cluster.gate.crawl(lambda: failing.child.poll() is not None, "the device's failure", steps=1, factor=1.3)
        cluster.gate.open()
        assert failing.wait() == 1, failing.output()
        wait_for(lambda: is_done(cluster, run), "the end of the run")
        assert cluster.json("status", run)["weights_sha256"] == done_event(undisturbed)["weights_sha256"]
        assert "worker device_lost run=" + run in failing.output(), failing.output()


if __name__ == "__main__":
    main(globals())
