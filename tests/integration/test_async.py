"""Mode async: each microbatch is an update by itself, when it comes. Which weights it was computed from is chance; that it
counts exactly once is not, whatever dies: a ledger of samples says so."""
import ledger
from gate import Gate
from harness import Cluster, Folder, done_event, main, read_metrics, wait_for, weir
from test_bad_input import refused
from test_fork import Forks
from test_parity import read_tensors
from test_ssp import Run, kill

ROWS, EPOCHS, BATCH, MICROBATCHES = 256, 6, 32, 8
STEPS = ROWS * EPOCHS // BATCH
EVERY = 7  # steps to a checkpoint


def mode(window=None):
    return "  mode: async\n" + ("" if window is None else f"  window: {window}\n")


def ledger_spec(folder, window=None, train=""):
    """The mean is a microbatch's, so its size is the rate at which a sample adds 1."""
    return ledger.spec(folder, ROWS, EPOCHS, BATCH, MICROBATCHES, mode(window) + train,
                       f"checkpoint: {{every_steps: {EVERY}}}\n", rate=BATCH // MICROBATCHES)


def assert_counted(path, epochs=EPOCHS):
    counted = read_tensors(path)
    assert {name: set(counts) for name, counts in counted.items()} == {name: {float(epochs)} for name in ledger.TABLES}


def assert_export_counted(folder, cluster, run, epochs=EPOCHS):
    weir("export", run, "-o", folder.file("ledger.safetensors"), "--coordinator", cluster.address)
    assert_counted(folder.file("ledger.safetensors"), epochs)


def steps_of(metrics, incarnation):
    return [event["step"] for event in read_metrics(metrics)
            if event["event"] == "step" and event.get("incarnation", 0) == incarnation]


def test_every_sample_counts_once_an_epoch_on_any_cluster():
    with Folder() as folder:
        for workers, servers, window in ((1, 1, None), (4, 1, 1), (3, 3, 16)):
            out = folder.file(f"out-{workers}-{servers}")
            weir("train", ledger_spec(folder, window), "--workers", workers, "--servers", servers, "--threads", 2, "--out", out)
            assert_counted(out + "/model.safetensors")
            assert steps_of(out + "/metrics.jsonl", 0) == list(range(STEPS))
            assert len(done_event(out + "/metrics.jsonl")["weights_sha256"]) == 64


def test_every_sample_counts_once_an_epoch_through_kills_of_everything():
    with Folder() as folder, Cluster(folder, servers=2, workers=3, gate=Gate(folder)) as cluster:
        cluster.gate.stop_at(EVERY - 1)  # at the first checkpoint: no server can be past it when it is ordered
        with Run(folder, cluster, ledger_spec(folder)) as run:
            run.wait_checkpoint(EVERY)
            cluster.gate.stop_at(15)
            kill(cluster.workers[0])  # with parts on their way, or not: each counts once
            cluster.add_worker()
            run.wait_step(13)
            cluster.gate.stop_at(22)
            kill(cluster.servers[1][0])  # the one that remains takes its blocks
            run.wait_step(18, incarnation=1)
            kill(cluster.workers[1], cluster.coordinator)
            cluster.start_coordinator()
            cluster.gate.stop_at(30)
            cluster.add_worker()
            run.wait_step(26, incarnation=1)
            kill(cluster.servers[0][0], cluster.coordinator, *cluster.workers[2:])
            cluster.start_coordinator()
            cluster.restart_server(0)
            cluster.add_worker()
            run.end()
        assert_export_counted(folder, cluster, run.name)


def test_pauses_holds_and_moves_count_nothing_twice():
    with Folder() as folder, Cluster(folder, servers=2, workers=3, gate=Gate(folder)) as cluster:
        def ask(*arguments):
            return weir(*arguments, "--coordinator", cluster.address)
        cluster.gate.stop_at(6)
        with Run(folder, cluster, ledger_spec(folder, train="  hold: 16\n")) as run:
            run.wait_step(6)
            cluster.gate.stop_at(15)
            ask("pause", run.name)
            wait_for(lambda: run.status()["state"] == "paused", "the run to pause")
            ask("resume", run.name)
            wait_for(lambda: run.status()["state"] == "held", "the run to be held")
            assert run.status()["step"] == 16
            cluster.gate.stop_at(24)
            ask("set", run.name, "train.hold=null")
            run.wait_step(20)
            second = cluster.json("servers")[1]["id"]
            ask("drain", second)
            cluster.gate.crawl(lambda: any(row["id"] == second and row["runs"] == 0 for row in cluster.json("servers")),
                               "the blocks to move", steps=2)
            run.end()
        assert_export_counted(folder, cluster, run.name)


def test_forks_know_what_was_applied():
    """Of steps behind the version that a fork begins at; also where its optimizer keeps other values."""
    with Folder() as folder, Cluster(folder, servers=2, workers=3, gate=Gate(folder)) as cluster:
        cluster.gate.stop_at(5)
        with Run(folder, cluster, ledger_spec(folder, 16)) as run:
            run.wait_step(5)
            parent = run.status()["run"]
            step = cluster.gate.crawl(lambda: run.status()["checkpoint_step"], "a checkpoint", steps=1)
            forks = [weir("fork", f"{parent}@{step}", *settings, "--coordinator", cluster.address).stdout.strip()
                     for settings in ((), ("train.optimizer.momentum=1e-30",))]
            run.end()
        for fork in forks:
            weir("watch", fork, "--coordinator", cluster.address)
        for name in (parent, *forks):
            assert_export_counted(folder, cluster, name)


def test_an_evaluation_is_of_one_version_whoever_computes_it():
    """Between evaluations weights are chance, at one they are not: with a rate of 0 loss and accuracy are sync's."""
    evals = []
    with Folder() as folder:
        folder.small_data(240, 300)
        model = folder.model("mlp", "--hidden", "32", "--batch-norm", "--seed", "3")
        for name, workers, servers, train in (("sync", 1, 1, ""), ("async", 3, 2, mode())):
            with open(folder.small_spec(model, 4, 20, 5)) as file:
                text = file.read().replace("lr: 0.05", "lr: 1e-30").replace("  seed: 3\n", "  seed: 3\n" + train)
            out = folder.file(name)
            weir("train", folder.file(name + ".yaml", text), "--workers", workers, "--servers", servers, "--threads", 1,
                 "--out", out)
            evals.append([(event["step"], event["loss"], event["accuracy"])
                          for event in read_metrics(out + "/metrics.jsonl") if event["event"] == "eval"])
    assert [step for step, _, _ in evals[0]] == [5, 10, 15, 20]
    assert evals[0] == evals[1], evals


def test_what_cannot_be_is_refused_by_name():
    with Folder() as folder, Forks(folder) as forks:
        def refuse(more, *words, tail="", **options):
            refused("submit", forks.spec(train=more, tail=tail, **options), "--coordinator", forks.cluster.address, words=words)
        refuse(mode(0), "train.window", "from 1 to 16")
        refuse(mode(17), "train.window", "from 1 to 16")
        refuse(mode("many"), "train.window", "many")
        refuse("  window: 1\n", "train.window", "train.mode async", "train.mode is sync")
        refuse(mode() + "  staleness: 1\n", "train.staleness", "train.mode ssp", "train.mode is async")
        refuse(mode() + "  clip_norm: 1\n", "train.clip_norm", "async")
        refuse(mode() + "  average: {decay: 0.9}\n", "train.average", "async")
        refuse(mode() + "  collective: shm\n", "train.collective", "async")
        refuse(mode() + "  deterministic: true\n", "train.deterministic", "async")
        refuse(mode(), "workers.stages", "async", tail="workers: {stages: 2}\n")
        for optimizer in ("lamb", "lars", "adafactor"):
            refuse(mode(), "train.optimizer", optimizer, "async", optimizer=f"{{name: {optimizer}, lr: 0.01}}")


def test_what_it_takes_is_said():
    with Folder() as folder:
        spec = ledger_spec(folder, 4)
        line = next(line for line in weir("inspect", spec).stdout.splitlines() if line.startswith("mode "))
        assert "async, window 4: at most 2 versions" in line and "of 1 step " in line and "2 versions on each worker" in line


if __name__ == "__main__":
    main(globals())
