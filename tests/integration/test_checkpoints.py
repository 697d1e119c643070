"""Checkpoints, as users meet them: listed, verified, exported, deleted, resumed and started from; and `weir train`
that is interrupted or killed, and goes on."""
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess

from gate import Gate
from harness import (DATA, PATIENCE, PEER_PYTHON, Cluster, Folder, Process, Skip, children_of, done_event, kept, main, newest_step,
                     outcome, program, read_metrics, wait_for, weir)

HERE = os.path.dirname(os.path.abspath(__file__))
# 120 samples in steps of 24: an epoch is 5 steps. Training waits for no checkpoint, so a run that is too fast for the
# store misses some.
STEPS, CHECKPOINTS = 100, "checkpoint: {every_steps: 20, keep: 2}\n"


def small_run(folder, steps=STEPS, tail=CHECKPOINTS, hidden=96, name=None, shuffle=True):
    """A spec over a few images, and its model."""
    folder.small_data(120, 24)
    model = folder.model("mlp", "--hidden", hidden, "--seed", 5)
    path = folder.small_spec(model, 2, steps, max(steps // 3, 1))
    with open(path) as file:
        text = file.read() + tail
    if not shuffle:
        text = text.replace("data:\n", "data:\n  shuffle: false\n")
    if name:
        text = text.replace("name: small", f"name: {name}")
    return folder.file(name + ".yaml" if name else os.path.basename(path), text)


def store_of(folder):
    return "file://" + folder.file("store")


def block_path(folder, key):
    return folder.file(os.path.join("store", "blocks", key[:2], key[2:]))


def blocks_in(folder):
    return sorted(part + name for part in os.listdir(folder.file("store/blocks"))
                  for name in os.listdir(folder.file("store/blocks/" + part)))


def finish(cluster, spec, *options):
    """Submits a run and waits for its end; returns its id."""
    run = weir("submit", spec, *options, "--coordinator", cluster.address).stdout.strip()
    weir("watch", run, "--coordinator", cluster.address)
    return run


def finish_with_two(cluster, spec):
    """As finish, with a checkpoint before the last: training does not wait for the store, so from step 20 on it goes on
    slowly until one is committed."""
    cluster.gate.stop_at(20)
    run = weir("submit", spec, "--coordinator", cluster.address).stdout.strip()
    cluster.gate.crawl(lambda: cluster.json("checkpoints", run), "a checkpoint")
    cluster.gate.open()
    weir("watch", run, "--coordinator", cluster.address)
    return run


def checkpoint_before_the_last(cluster, run):
    """Its step. No more blocks than those of checkpoints are left in the store."""
    weir("gc", "--coordinator", cluster.address)
    steps = [entry["step"] for entry in cluster.json("checkpoints", run)]
    assert len(steps) == 2 and steps[0] < steps[1] == cluster.json("status", run)["steps"], steps
    return steps[0]


def first_loss(folder, cluster, run):
    metrics = folder.file(f"{run}.jsonl")
    weir("watch", run, "--metrics", metrics, "--coordinator", cluster.address)
    return next(event["loss"] for event in read_metrics(metrics) if event["event"] == "step" and event["step"] == 0)


def loss_at(folder, cluster, run, step):
    metrics = folder.file(f"{run}-all.jsonl")
    weir("watch", run, "--metrics", metrics, "--coordinator", cluster.address)
    return next(event["loss"] for event in read_metrics(metrics) if event["event"] == "step" and event["step"] == step)


def refused(text, *arguments):
    error = weir(*arguments, status=2).stderr
    assert text in error, error
    return error


def test_checkpoints_are_listed_and_verified_with_and_without_a_coordinator():
    with Folder() as folder, Cluster(folder, servers=2, workers=1, gate=Gate(folder)) as cluster:
        at, stored = ("--coordinator", cluster.address), ("--store", store_of(folder))
        run = finish_with_two(cluster, small_run(folder))
        step, listed = checkpoint_before_the_last(cluster, run), cluster.json("checkpoints", "small")
        assert step % 20 == 0, listed
        assert all(entry["blocks"] == listed[0]["blocks"] and entry["bytes"] > 0 for entry in listed)
        assert json.loads(weir("checkpoints", run, "--json", *stored).stdout) == listed
        status = cluster.json("status", run)
        assert status["checkpoint_step"] == STEPS and status["checkpoints"] == 2 and not status["store_message"], status
        assert re.search(rf"checkpoint +step {STEPS}, \d+ s ago", weir("status", run, *at).stdout)
        entry, = json.loads(weir("runs", "--json", *stored).stdout)
        assert (entry["run"], entry["state"], entry["step"]) == (run, "done", STEPS), entry
        assert entry["weights_sha256"] == status["weights_sha256"]
        for where in (at, stored):
            verdict = weir("verify", "small", *where).stdout.splitlines()
            assert [line.split(",")[0] for line in verdict] == [f"step {step}: whole", f"step {STEPS}: whole"], verdict
            assert verdict[1].endswith(status["weights_sha256"]), verdict
            assert len(weir("verify", "small", "--step", step, *where).stdout.splitlines()) == 1
            refused("step 7", "verify", "small", "--step", 7, *where)
            assert re.search(rf"\n +{step}  ", weir("checkpoints", run, *where).stdout)


def test_verify_names_the_damaged_and_the_missing_block():
    with Folder() as folder, Cluster(folder, gate=Gate(folder)) as cluster:
        checkpoint_before_the_last(cluster, finish_with_two(cluster, small_run(folder)))
        with open(folder.file("mlp.onnx"), "rb") as file:
            model = hashlib.sha256(file.read()).hexdigest()
        key = next(key for key in blocks_in(folder) if key != model)
        with open(block_path(folder, key), "r+b") as file:
            whole = file.read()
            file.seek(len(whole) // 2)
            file.write(bytes([whole[len(whole) // 2] ^ 1]))
        for damage in ("damaged", "missing"):
            for where in (("--coordinator", cluster.address), ("--store", store_of(folder))):
                verdict = weir("verify", "small", *where, status=1).stdout
                assert key in verdict, (damage, key, verdict)
                assert verdict.count("whole") == 1 and verdict.count(": damaged") == 1, verdict
            if os.path.exists(block_path(folder, key)):
                os.unlink(block_path(folder, key))
        with open(block_path(folder, key), "wb") as file:
            file.write(whole)
        weir("verify", "small", "--coordinator", cluster.address)


def test_verify_names_a_checkpoint_whose_record_is_lost():
    with Folder() as folder, Cluster(folder, gate=Gate(folder)) as cluster:
        run = finish_with_two(cluster, small_run(folder))
        step = checkpoint_before_the_last(cluster, run)
        path = folder.file(os.path.join("store", "records", "runs", run, "checkpoints", f"{step:020}"))
        os.rename(path, folder.file("aside"))
        for which, n in ((), 2), (("--step", step), 1):
            done = weir("verify", run, *which, "--coordinator", cluster.address, status=1)
            assert f"  the store has no record of it\nstep {step}: damaged\n" in done.stdout, done.stdout
            assert f"1 of {n} checkpoints damaged\n" in done.stderr, done.stderr
        os.rename(folder.file("aside"), path)
        weir("verify", run, "--coordinator", cluster.address)


def peer_hash(onnx, safetensors):
    """weights_sha256 as other programs compute it from both forms."""
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    done = subprocess.run([PEER_PYTHON, os.path.join(HERE, "peer_evaluate.py"), onnx, safetensors, DATA],
                          capture_output=True, text=True, timeout=PATIENCE * 3)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["weights_sha256"]


def test_any_checkpoint_is_exported_with_and_without_a_coordinator():
    with Folder() as folder:
        with Cluster(folder, servers=2, gate=Gate(folder)) as cluster:
            at = ("--coordinator", cluster.address)
            step = checkpoint_before_the_last(cluster, finish_with_two(cluster, small_run(folder)))
            verdict = weir("verify", "small", "--step", step, *at).stdout
            for name in ("asked.onnx", "asked.safetensors"):
                weir("export", "small", "--step", step, "-o", folder.file(name), *at)
            weir("export", "small", "-o", folder.file("last.safetensors"), *at)
            weir("export", "small", "--step", 0, "-o", folder.file("asked-first.safetensors"), *at)
            refused("checkpoint", "export", "small", "--step", 7, "-o", folder.file("no.onnx"), *at)
        stored = ("--store", store_of(folder))
        for name in ("stored.onnx", "stored.safetensors"):
            weir("export", "small", "--step", step, "-o", folder.file(name), *stored)
        weir("export", "small", "-o", folder.file("stored-last.safetensors"), *stored)
        weir("export", "small", "--step", 0, "-o", folder.file("first.safetensors"), *stored)
        refused(f"it has: {step}, {STEPS}", "export", "small", "--step", 7, "-o", folder.file("no.onnx"), *stored)

        def content(name):
            with open(folder.file(name), "rb") as file:
                return file.read()
        assert content("asked.onnx") == content("stored.onnx")
        assert content("asked.safetensors") == content("stored.safetensors")
        assert content("last.safetensors") == content("stored-last.safetensors")
        assert content("asked-first.safetensors") == content("first.safetensors")
        assert len({content(name) for name in ("first.safetensors", "asked.safetensors", "last.safetensors")}) == 3
        assert verdict.split()[-1] == peer_hash(folder.file("asked.onnx"), folder.file("asked.safetensors"))


def test_a_store_url_with_a_password_is_refused_on_a_command_line():
    with Folder() as folder:
        url = "redis://user:hush@127.0.0.1:1/0"
        spec = small_run(folder)
        for command in (["runs"], ["gc"], ["checkpoints", "a"], ["verify", "a"], ["export", "a", "-o", "a.onnx"],
                        ["train", spec]):
            error = refused("WEIR_STORE_PASSWORD", *command, "--store", url)
            assert "hush" not in error, error
        refused("there is no folder", "runs", "--store", store_of(folder))
        assert not os.path.exists(folder.file("store")), "what only reads makes no store"


def test_a_paused_run_resumes_from_the_step_asked_for_with_the_same_result():
    with Folder() as folder, Cluster(folder, servers=2, workers=2, is_patient=True, gate=Gate(folder)) as cluster:
        at = ("--coordinator", cluster.address)
        spec = small_run(folder, steps=200, tail="checkpoint: {every_steps: 25, keep: 50}\n", hidden=64)
        undisturbed, metrics = finish(cluster, spec), folder.file("m.jsonl")
        cluster.gate.stop_at(60)
        run = weir("submit", spec, *at).stdout.strip()
        with Process(program("weir"), "watch", run, "--metrics", metrics, *at) as watcher:
            wait_for(lambda: newest_step(metrics) >= 60, "steps")
            cluster.gate.crawl(lambda: cluster.json("status", run)["checkpoint_step"] > 0, "a checkpoint to go back to", 25)
            assert run in weir("pause", run, *at).stdout
            cluster.gate.crawl(lambda: cluster.json("status", run)["state"] == "paused", "the pause")
            cluster.gate.open()
            status = cluster.json("status", run)
            assert status["step"] == status["checkpoint_step"] < 200, status
            steps = [entry["step"] for entry in cluster.json("checkpoints", run)]
            assert steps[-1] == status["step"]
            # a boundary that comes while the last checkpoint is still being written has none
            asked = next(step for step in reversed(steps[:-1]) if step > 0)
            assert watcher.child.poll() is None, "a watcher waits for a paused run"
            refused("no checkpoint", "resume", run, "--step", 7, *at)
            weir("resume", run, "--step", asked, *at)
            assert watcher.wait() == 0, watcher.output()[-2000:]
        again = [event["step"] for event in read_metrics(metrics)
                 if event["event"] == "step" and event.get("incarnation")]
        assert again == list(range(asked, 200)), (asked, again[:3], len(again))
        assert done_event(metrics)["weights_sha256"] == cluster.json("status", undisturbed)["weights_sha256"]
        refused("done", "resume", run, *at)


def test_a_run_starts_from_the_weights_of_another():
    with Folder() as folder, Cluster(folder, gate=Gate(folder)) as cluster:
        at = ("--coordinator", cluster.address)
        # in file order, so that the first step of an epoch has the same samples in each
        source = finish_with_two(cluster, small_run(folder, shuffle=False, name="source"))
        step = checkpoint_before_the_last(cluster, source)
        loss, start = loss_at(folder, cluster, source, step), loss_at(folder, cluster, source, 0)
        assert abs(loss - start) > 1e-3, "it learns"
        spec = small_run(folder, shuffle=False, name="next", steps=3)
        assert first_loss(folder, cluster, finish(cluster, spec, "--from", f"source@{step}")) == loss
        assert first_loss(folder, cluster, finish(cluster, spec)) == start
        weights = folder.file("at-step.safetensors")
        weir("export", source, "--step", step, "-o", weights, *at)
        assert first_loss(folder, cluster, finish(cluster, spec, "--from", weights)) == loss
        out = folder.file("out")
        weir("train", spec, "--from", weights, "--out", out)
        assert read_metrics(os.path.join(out, "metrics.jsonl"))[0]["loss"] == loss
        assert first_loss(folder, cluster, finish(cluster, spec, "--from", "source@0")) == start
        newest = weir("submit", spec, "--from", "source", *at).stdout.strip()
        assert first_loss(folder, cluster, newest) not in (loss, start)


def test_weights_of_what_is_frozen_are_taken_too():
    with Folder() as folder:
        folder.small_data(120, 48)
        spec = folder.small_spec(folder.model("lenet", "--batch-norm"), 2, 20, 20)
        weir("train", spec, "--out", folder.file("whole"))
        losses = [event["loss"] for event in read_metrics(folder.file("whole/metrics.jsonl")) if event["event"] == "eval"]
        folder.model("lenet", "--batch-norm", "--seed", 7)
        text = open(spec).read().replace("steps: 20\n", "steps: 0\n")
        frozen = text.replace("loss: cross_entropy", "loss: cross_entropy, batch_norm: fixed, frozen: ['conv1.*']")
        assert frozen != text != open(spec).read()
        weir("train", folder.file("frozen.yaml", frozen), "--from", folder.file("whole/model.safetensors"),
             "--out", folder.file("frozen"))
        again, = [event["loss"] for event in read_metrics(folder.file("frozen/metrics.jsonl")) if event["event"] == "eval"]
        assert again == losses[-1], (again, losses)


def test_weights_that_do_not_fit_are_refused_by_name():
    with Folder() as folder, Cluster(folder) as cluster:
        at = ("--coordinator", cluster.address)
        finish(cluster, small_run(folder, name="source", steps=5))
        weights = folder.file("w.safetensors")
        weir("export", "source", "-o", weights, *at)
        with open(weights, "rb") as file:
            content = file.read()
        length = int.from_bytes(content[:8], "little")
        header, data = json.loads(content[8:8 + length]), content[8 + length:]
        first = next(name for name in header if name != "__metadata__")

        def write(change):
            changed = json.loads(json.dumps(header))
            change(changed)
            text = json.dumps(changed).encode()
            return folder.file("changed.safetensors", len(text).to_bytes(8, "little") + text + data)
        spec = folder.file("source.yaml")
        renamed = write(lambda h: h.update({"other": h.pop(first)}))
        refused(f"1 of the model's trained tensors are not there: '{first}'", "submit", spec, "--from", renamed, *at)
        shape = header[first]["shape"]
        reshaped = write(lambda h: h[first].update(shape=[1] + shape))
        error = refused(f"tensor '{first}' is [1,", "submit", spec, "--from", reshaped, *at)
        assert "in the model" in error, error
        extra = write(lambda h: h.update(extra={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}))
        noted = weir("submit", spec, "--from", extra, *at)
        assert noted.stdout.startswith("source-") and "'extra'" in noted.stderr, noted.stderr
        refused("not a step", "submit", spec, "--from", "source@x", *at)
        refused("no run", "submit", spec, "--from", "nobody@5", *at)
        refused("not a safetensors file", "submit", spec, "--from", folder.file("cut.safetensors", content[:20]), *at)
        refused("is not a FILE.safetensors", "train", spec, "--from", "source")


LONG = {"steps": 150, "tail": "checkpoint: {every_steps: 10, keep: 3}\n", "hidden": 32}
TRAIN = ("--workers", 2, "--servers", 2, "--threads", 1)


def assert_same_result(metrics, expected):
    """Every step once an incarnation, none missing, and the newest of each as in the outcome of an undisturbed run."""
    events = [event for event in read_metrics(metrics) if event["event"] == "step"]
    marks = [(event.get("incarnation", 0), event["step"]) for event in events]
    assert len(set(marks)) == len(marks), "a line came twice"
    newest = {event["step"]: event["loss"] for event in events}
    assert newest == {step[0]: step[2] for step in expected["steps"]}
    assert done_event(metrics)["weights_sha256"] == expected["weights"]
    assert [event["event"] for event in read_metrics(metrics)].count("done") == 1


def undisturbed_outcome(folder, spec):
    def train():
        weir("train", spec, *TRAIN, "--out", folder.file("undisturbed"))
        return outcome(folder.file("undisturbed/metrics.jsonl"))
    return kept("checkpoints", train)


def shown_steps(printed):
    """Of the lines of progress: (step, the run's steps)."""
    return [(int(step), int(steps)) for step, steps in re.findall(r"^step (\d+)/(\d+) ", printed, re.MULTILINE)]


def test_an_interrupted_training_resumes_with_the_printed_command_and_the_same_result():
    with Folder() as folder:
        spec = small_run(folder, **LONG)
        undisturbed = undisturbed_outcome(folder, spec)
        with open(spec) as file:
            spec, setting = folder.file("other.yaml", file.read().replace("lr: 0.05", "lr: 77")), "train.optimizer.lr=0.05"
        gate, out = Gate(folder), folder.file("an out")
        metrics, second = os.path.join(out, "metrics.jsonl"), folder.file("second.jsonl")
        gate.stop_at(41)
        with Process(program("weir"), "train", spec, setting, *TRAIN, "--out", out, "--metrics", second,
                     env=gate.environment) as training:
            wait_for(lambda: newest_step(metrics) > 40, "steps")
            children = [pid for name in ("weir-server", "weir-worker") for pid in children_of(training.child.pid, name)]
            training.send(signal.SIGINT)
            gate.crawl(lambda: training.child.poll() is not None, "the end of the interrupted training")
            assert training.wait() == 130, training.output()[-3000:]
            printed = training.output()
        assert not [pid for pid in children if os.path.exists(f"/proc/{pid}")], "all are gone"
        paused = int(re.search(r"is paused at step (\d+)", printed).group(1))
        assert 40 < paused < LONG["steps"], printed[-1000:]
        assert {steps for _, steps in shown_steps(printed)} == {LONG["steps"]}, printed
        command = shlex.split(re.search(r"to resume: (.*)", printed).group(1))
        assert command[1:4] == ["train", spec, setting] and "--resume" in command and str(out) in command, command
        refused("--resume", "train", spec, "--out", out)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 3)
        assert done.returncode == 0, done.stdout + done.stderr
        assert shown_steps(done.stdout)[0][0] >= paused, "steps of before are not shown again: " + done.stdout
        assert_same_result(metrics, undisturbed)
        assert_same_result(second, undisturbed)
        # once more: it is done, its files are written again
        with open(metrics) as file:
            before = file.read()
        os.unlink(os.path.join(out, "model.safetensors"))
        weir("train", spec, setting, *TRAIN, "--out", out, "--resume")
        assert os.path.exists(os.path.join(out, "model.safetensors"))
        with open(metrics) as file:
            assert file.read() == before


def test_a_training_that_was_killed_altogether_resumes_with_the_same_result():
    with Folder() as folder:
        spec = small_run(folder, **LONG)
        undisturbed = undisturbed_outcome(folder, spec)
        gate, out = Gate(folder), folder.file("out")
        metrics = os.path.join(out, "metrics.jsonl")
        arguments = ("train", spec, *TRAIN, "--out", out)
        for target, options in ((25, ()), (75, ("--resume",))):
            gate.stop_at(target + 25)
            with Process(program("weir"), *arguments, *options, env=gate.environment) as training:
                wait_for(lambda: newest_step(metrics) >= target or training.child.poll() is not None, "steps")
                assert training.child.poll() is None, training.output()[-3000:]
                children = [pid for name in ("weir-server", "weir-worker")
                            for pid in children_of(training.child.pid, name)]
                training.child.kill()
                for pid in children:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass  # its parent's death took it along
                training.wait()
        weir(*arguments, "--resume")
        assert_same_result(metrics, undisturbed)


def test_a_training_survives_the_death_of_each_of_its_processes():
    with Folder() as folder:
        spec = small_run(folder, **LONG)
        undisturbed = undisturbed_outcome(folder, spec)
        gate, out = Gate(folder), folder.file("out")
        metrics = os.path.join(out, "metrics.jsonl")
        gate.stop_at(40)
        with Process(program("weir"), "train", spec, *TRAIN, "--out", out, env=gate.environment) as training:
            for target, role in ((15, "--role=parameters"), (50, "--role=coordinator"), (85, "--threads=1")):
                gate.stop_at(target + 25)
                wait_for(lambda: newest_step(metrics) >= target or training.child.poll() is not None, "steps")
                assert training.child.poll() is None, training.output()[-3000:]
                for name in ("weir-server", "weir-worker"):
                    for pid in children_of(training.child.pid, name):
                        with open(f"/proc/{pid}/cmdline") as file:
                            words = file.read().split("\0")
                        assert not any("store" in word for word in words), words
                        if role in words:
                            os.kill(pid, signal.SIGKILL)
                            break
            gate.open()
            assert training.wait() == 0, training.output()[-3000:]
        assert_same_result(metrics, undisturbed)


def test_a_folder_is_resumed_only_with_its_own_spec_model_and_store():
    with Folder() as folder:
        spec, out = small_run(folder, steps=5), folder.file("out")
        refused("holds no run to resume", "train", spec, "--out", out, "--resume")
        weir("train", spec, "--out", out)
        with open(spec) as file:
            text = file.read()
        other = folder.file("other.yaml", text.replace("seed: 3", "seed: 4"))
        refused("train.seed is 4 and was 3", "train", other, "--out", out, "--resume")
        refused("resume it without --store", "train", spec, "--out", out, "--resume", "--store", store_of(folder))
        refused("choose one", "train", spec, "--out", out, "--resume", "--force")
        folder.model("mlp", "--hidden", 16, "--seed", 6)
        refused("is another one than when run", "train", spec, "--out", out, "--resume")


if __name__ == "__main__":
    main(globals())
