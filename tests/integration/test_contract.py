"""What scripts rely on: exit statuses, what is on stdout, what an interrupt does, which processes there are."""
import os
import signal

from harness import (Cluster, Folder, Process, children_of, main, newest_step, program, wait_for, weir)

ENDLESS = "  steps: 1000000\n  batch: 32\n  microbatches: 2\n  optimizer: {lr: 0.01}\n"


def endless(folder, run="endless"):
    return folder.spec(folder.model("mlp", "--hidden", "8"), run=run, train=ENDLESS)


def command_line(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().split("\0")


def test_an_interrupted_watcher_detaches_and_the_run_goes_on():
    with Folder() as folder, Cluster(folder) as cluster:
        environment = dict(os.environ, WEIR_COORDINATOR=cluster.address)
        spec = endless(folder)
        run = weir("submit", spec, env=environment).stdout
        assert run.startswith("endless-") and run.count("\n") == 1, run
        second = folder.spec(folder.file("mlp.onnx"), name="second.yaml", run="second", train=ENDLESS)
        for command, number in ((["watch", run.strip()], signal.SIGINT), (["watch", run.strip()], signal.SIGTERM),
                                (["watch", run.strip()], signal.SIGHUP), (["submit", second, "--follow"], signal.SIGINT)):
            metrics = folder.file(f"{command[0]}-{number}.jsonl")
            # a hangup that whoever started the tests ignores, as nohup does, is not ignored here
            with Process("env", "--default-signal=HUP", program("weir"), *command, "--metrics", metrics, env=environment) as watcher:
                if command[0] == "watch":
                    wait_for(lambda: newest_step(metrics) >= 0, "a step")
                else:
                    wait_for(lambda: "second-" in watcher.output(), "the run's id")
                watcher.send(number)
                assert watcher.wait() == 130, watcher.output()[-2000:]
        seen = cluster.json("status", run.strip())["step"]
        wait_for(lambda: cluster.json("status", run.strip())["step"] > seen, "further steps")
        states = {entry["name"]: entry["state"] for entry in cluster.json("runs")}
        assert states["second"] not in ("cancelled", "failed"), states


def test_who_is_to_outlive_its_terminal_does():
    """As by nohup(1), which has it ignore the hangup."""
    with Folder() as folder:
        metrics = folder.file("m.jsonl")
        with Process("sh", "-c", 'trap "" HUP; exec "$@"', "sh", program("weir"), "train", endless(folder), "--threads", 1,
                     "--metrics", metrics, cwd=folder.path) as training:
            wait_for(lambda: newest_step(metrics) >= 0, "a step")
            training.send(signal.SIGHUP)
            seen = newest_step(metrics)
            wait_for(lambda: newest_step(metrics) > seen + 20, "further steps")
            assert "Ctrl-C" not in training.output(), "it stops"
            training.send(signal.SIGINT)
            assert training.wait() == 130, training.output()[-2000:]


def test_a_watcher_of_a_cancelled_run_fails():
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        at = ("--coordinator", cluster.address)
        run = weir("submit", endless(folder), *at).stdout.strip()
        weir("cancel", run, *at)
        assert f"run '{run}' was cancelled" in weir("watch", run, *at, status=1).stderr
        refusal = weir("export", run, "-o", folder.file("x.onnx"), *at, status=2).stderr
        assert "has no checkpoint" in refusal, refusal


def test_train_starts_its_cluster_as_direct_children_and_takes_it_down_when_interrupted():
    with Folder() as folder:
        spec, metrics = endless(folder), folder.file("m.jsonl")
        with Process(program("weir"), "train", spec, "--workers", 2, "--servers", 2, "--threads", 1, "--metrics",
                     metrics, cwd=folder.path) as training:
            wait_for(lambda: newest_step(metrics) >= 0, "a step")
            workers, servers = (wait_for(lambda name=name, n=n: len(children_of(training.child.pid, name)) >= n and
                                         children_of(training.child.pid, name), f"{n} processes {name}")
                                for name, n in (("weir-worker", 2), ("weir-server", 3)))
            roles = sorted(command_line(pid)[1] for pid in servers)
            assert len(workers) == 2 and roles == ["--role=coordinator"] + 2 * ["--role=parameters"], roles
            address = next(word for word in training.output().split() if word.startswith("127.0.0.1:"))
            assert "endless-" in weir("runs", "--coordinator", address).stdout
            training.send(signal.SIGINT)
            assert training.wait() == 130, training.output()[-2000:]
            assert not [pid for pid in workers + servers if os.path.exists(f"/proc/{pid}")], "all are gone"
        assert os.path.isdir(folder.file("weir-out/endless/store")), "the default --out and its store"


def test_a_second_interrupt_does_not_wait_for_the_checkpoint():
    with Folder() as folder:
        spec, out = endless(folder), folder.file("out")
        metrics = os.path.join(out, "metrics.jsonl")
        with Process(program("weir"), "train", spec, "--out", out) as training:
            wait_for(lambda: newest_step(metrics) >= 0, "a step")
            blocks = os.path.join(out, "store", "blocks")
            os.rename(blocks, folder.file("aside"))
            folder.file(os.path.join("out", "store", "blocks"), "in the way of whoever writes a checkpoint\n")
            training.send(signal.SIGINT)
            wait_for(lambda: "Ctrl-C again to stop at once" in training.output(), "the offer")
            assert training.child.poll() is None
            training.send(signal.SIGINT)
            assert training.wait() == 130, training.output()[-2000:]
            assert "to resume: " in training.output() and "was not paused" in training.output(), training.output()


def test_relative_data_lies_below_the_data_root():
    with Folder() as folder:
        folder.small_data(64, 32)
        os.mkdir(folder.file("below"))
        with open(folder.small_spec(folder.model("mlp", "--hidden", "4"), 2, 2, 2)) as file:
            spec = folder.file("relative.yaml", file.read().replace(f"root: {folder.path}\n", "root: ./\n"))
        out = folder.file("out")
        weir("train", spec, "--out", out, "--data-root", folder.path)
        for root, complaint in (("below", "below/train-images-idx3"), ("none", "none: No such file")):
            answer = weir("train", spec, "--out", out, "--force", "--data-root", folder.file(root), status=2)
            assert complaint in answer.stderr, answer


def test_train_starts_a_killed_worker_again():
    with Folder() as folder:
        spec, metrics = endless(folder), folder.file("m.jsonl")
        with Process(program("weir"), "train", spec, "--out", folder.file("out"), "--metrics", metrics) as training:
            wait_for(lambda: newest_step(metrics) >= 0, "a step")
            victim = children_of(training.child.pid, "weir-worker")[0]
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: set(children_of(training.child.pid, "weir-worker")) - {victim}, "another worker")
            seen = newest_step(metrics)
            wait_for(lambda: newest_step(metrics) > seen + 5, "further steps")
            training.send(signal.SIGINT)
            assert training.wait() == 130, training.output()[-2000:]


if __name__ == "__main__":
    main(globals())
