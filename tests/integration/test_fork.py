"""weir fork: runs that begin from another's checkpoint, optimizer state included. With nothing changed they end in its
weights, whatever dies, and whatever becomes of it."""
import glob
import json
import os
import re
import struct
import subprocess
import sys

from gate import Gate
from harness import PATIENCE, ROOT, Cluster, Folder, main, outcome, program, read_metrics, wait_for, weir

sys.path.insert(0, os.path.join(ROOT, "tests", "chaos"))
from crash_points import CALLS, Shim

# 120 samples in steps of 24: an epoch is 5 steps. Checkpoints are at multiples of them, so that without shuffling a fork
# goes on with the samples that a run begins with. The first is made while the run stands still: none is missed.
STEPS, CHECKPOINTS = 60, "checkpoint: {every_steps: 5, keep: 50}\n"
SGD = "{name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.001}"
ADAM = "{name: adam, lr: 0.002}"
COSINE = "  schedule: {name: cosine, warmup_steps: 30}\n"


class Forks:
    """A cluster and what it is asked, over a small model with batch norm."""

    def __init__(self, folder, dropout=0.25, workers=1, **options):
        folder.small_data(120, 24)
        self.folder = folder
        self.model = folder.model("mlp", "--hidden", "84", "--batch-norm", "--dropout", dropout, "--seed", 5)
        options.setdefault("is_patient", True)  # outcomes are those of runs that go back nowhere
        self.cluster = Cluster(folder, servers=2, workers=workers, gate=Gate(folder), **options)
        self.gate = self.cluster.gate

    def __enter__(self):
        self.cluster.__enter__()
        return self

    def __exit__(self, *unused):
        self.cluster.__exit__()

    def move(self, workers):
        """To a fresh cluster, of another shape, which has nothing of the former one but its store."""
        self.cluster.__exit__()
        self.cluster = Cluster(self.folder, servers=1, workers=workers, gate=self.cluster.gate)
        self.cluster.__enter__()

    def spec(self, optimizer=SGD, train="", name="small", data="", tail=CHECKPOINTS):
        with open(self.folder.small_spec(self.model, 2, STEPS, 20)) as file:
            text = file.read()
        text = re.sub(r"optimizer: .*\n", f"optimizer: {optimizer}\n{train}", text).replace("data:\n", "data:\n" + data)
        return self.folder.file(f"{name}.yaml", text.replace("name: small", f"name: {name}") + tail)

    def ask(self, *arguments, **options):
        return weir(*arguments, "--coordinator", self.cluster.address, **options)

    def submit(self, spec, *arguments):
        return self.ask("submit", spec, *arguments).stdout.strip()

    def fork(self, run, *arguments):
        return self.ask("fork", run, *arguments).stdout.strip()

    def refused(self, text, *arguments):
        error = self.ask(*arguments, status=2).stderr
        assert error.count("\n") == 1 and text in error, error

    def end(self, run):
        """Its outcome, by the metrics."""
        metrics = self.folder.file(f"{run}.jsonl")
        self.ask("watch", run, "--metrics", metrics)
        return outcome(metrics)

    def status(self, run):
        return self.cluster.json("status", run)

    def steps(self, run):
        return [entry["step"] for entry in self.cluster.json("checkpoints", run)]

    def parent(self, spec, *arguments):
        """A run that is done, and the step of a checkpoint before its last."""
        self.gate.stop_at(20)
        run = self.submit(spec, *arguments)
        self.gate.crawl(lambda: self.steps(run), "a checkpoint", steps=5)
        step = self.steps(run)[0]
        self.gate.open()
        self.ask("watch", run)
        return run, step

    def stands(self, run, step):
        """Waits for the version at which the gate holds it."""
        wait_for(lambda: self.status(run)["step"] == step + 1, "steps of the fork")

    def stored(self):
        """The blocks in the store."""
        folder = self.folder.file("store/blocks")
        return sorted(part + name for part in os.listdir(folder) for name in os.listdir(os.path.join(folder, part)))

    def named(self, run):
        """Those that the manifests of a run name, and its model."""
        folder, found = self.folder.file(f"store/records/runs/{run}/checkpoints"), set()
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                found |= set(key.decode() for key in re.findall(rb"[0-9a-f]{64}", file.read()))
        return found


def after(events, step):
    return [event for event in events if event[0] >= step]


def assert_goes_on(fork, parent, step):
    """The fork did what its parent did from that step on."""
    assert fork["steps"] == after(parent["steps"], step), (fork["steps"][:2], step)
    assert fork["evals"][-1] == parent["evals"][-1]
    assert fork["weights"] == parent["weights"]


def test_an_unchanged_fork_ends_in_its_parents_weights():
    with Folder() as folder, Forks(folder) as forks:
        for name, optimizer in (("sgd", SGD), ("adam", ADAM)):
            run, step = forks.parent(forks.spec(optimizer, COSINE, name=name))
            forks.ask("gc")
            before, expected = forks.stored(), forks.end(run)
            forks.gate.stop_at(step)  # the fork writes nothing of its own so soon
            fork = forks.fork(f"{run}@{step}")
            assert re.fullmatch(name + "-[0-9a-f]{6}", fork) and fork != run
            assert forks.stored() == before, "a block was written"
            forks.gate.open()
            assert_goes_on(forks.end(fork), expected, step)
            status = forks.status(fork)
            assert (status["parent"], status["parent_step"]) == (run, step), status
            assert f"forked from  {run} at step {step}\n" in forks.ask("status", fork).stdout
            assert forks.status(run)["parent"] == "" and "forked" not in forks.ask("status", run).stdout
            again = forks.fork(f"{fork}@{step}", "--name", "again")  # from the fork's own base
            assert again.startswith("again-"), again
            assert_goes_on(forks.end(again), expected, step)


def test_half_the_rate_is_a_schedule_that_halves_it_there():
    with Folder() as folder, Forks(folder) as forks:
        spec = forks.spec()
        run, step = forks.parent(spec)
        halved = forks.end(forks.fork(f"{run}@{step}", "train.optimizer.lr=0.025", "eval.every_steps=7"))
        fresh = forks.end(forks.submit(
            spec, f"train.schedule={{name: multistep, milestones: [{step}], gamma: 0.5}}"))
        assert halved["steps"] == after(fresh["steps"], step)
        assert halved["weights"] == fresh["weights"] != forks.status(run)["weights_sha256"]
        assert {line[0] for line in halved["evals"]} >= {STEPS, 49, 56}, halved["evals"]


def test_a_run_that_is_done_goes_on_in_a_fork_with_more_steps():
    with Folder() as folder, Forks(folder) as forks:
        spec = forks.spec(ADAM)
        run, _ = forks.parent(spec)
        forks.refused("train.steps: the fork would end with step 60, and begins at 60", "fork", run)
        longer = forks.end(forks.fork(run, "train.steps=90"))
        fresh = forks.end(forks.submit(spec, "train.steps=90"))
        assert longer["steps"] == after(fresh["steps"], STEPS) and longer["weights"] == fresh["weights"]
        by_epochs = forks.end(forks.fork(run, "train.epochs=18"))  # of 5 steps
        assert by_epochs["weights"] == fresh["weights"]
        cosine = forks.end(forks.fork(run, "train.steps=90", "train.schedule={name: cosine}"))
        of_ninety = forks.end(forks.submit(spec, "train.steps=90", "train.schedule={name: cosine}"))
        assert [line[3] for line in cosine["steps"]] == [line[3] for line in after(of_ninety["steps"], STEPS)]


def test_an_optimizer_that_keeps_other_values_begins_anew():
    """As does that of a run which begins with the weights alone: without shuffling and dropout it sees the same."""
    changes = ((("train.optimizer.momentum=0.9",), "{name: sgd, lr: 0.05}"),
               (("train.optimizer.amsgrad=true",), ADAM),
               (("train.optimizer={name: adam, lr: 0.002}",), SGD),
               (("train.optimizer.centered=true", "train.optimizer.momentum=0"), "{name: rmsprop, lr: 0.001, momentum: 0.5}"))
    with Folder() as folder, Forks(folder, dropout=0) as forks:
        for number, (settings, optimizer) in enumerate(changes):
            spec = forks.spec(optimizer, name=f"change-{number}", data="  shuffle: false\n")
            run, step = forks.parent(spec)
            forks.gate.stop_at(step)
            done = forks.ask("fork", f"{run}@{step}", *settings)
            assert re.fullmatch(rf"weir: note: the optimizer keeps other values of each weight than that of {run} did: they "
                                rf"begin anew at step {step}\n", done.stderr), done.stderr
            fork = done.stdout.strip()
            forks.gate.crawl(lambda: len(forks.steps(fork)) > 1, "a checkpoint of the fork", steps=2)
            forks.gate.open()
            alone = forks.submit(spec, "--from", f"{run}@{step}", f"train.steps={STEPS - step}", *settings)
            expected = forks.end(alone)
            assert forks.end(fork)["weights"] == expected["weights"], settings
            # what begins anew at its base still does in a fork of it there, and in one of a later checkpoint it goes on
            at = next(at for at in forks.steps(fork) if at > step)
            assert at < STEPS, forks.steps(fork)
            for at in (step, at):
                assert forks.end(forks.fork(f"{fork}@{at}"))["weights"] == expected["weights"], (settings, at)
            # and back to what the blocks of the base hold
            if number == 1:
                back = forks.end(forks.fork(f"{fork}@{step}", "train.optimizer.amsgrad=null"))
                assert back["weights"] == forks.status(run)["weights_sha256"]


def test_an_average_goes_on_and_one_that_is_new_begins_with_the_weights():
    with Folder() as folder, Forks(folder) as forks:
        def exported(run, step, *options):
            path = folder.file("exported.safetensors")
            forks.ask("export", run, "--step", step, "-o", path, *options)
            with open(path, "rb") as file:
                size, = struct.unpack("<Q", file.read(8))
                head, body = json.loads(file.read(size)), file.read()
            spans = {name: entry["data_offsets"] for name, entry in head.items() if "data_offsets" in entry}
            return {name: body[begin:end] for name, (begin, end) in spans.items() if "running" not in name}  # they have none
        run, step = forks.parent(forks.spec("{name: sgd, lr: 0.05}", "  average: {decay: 0.8}\n"))
        kept = forks.fork(f"{run}@{step}", "train.average.decay=1", "train.optimizer.momentum=0.9")
        forks.end(kept)
        assert exported(kept, STEPS, "--average") == exported(run, step, "--average") != exported(run, step)
        plain, at = forks.parent(forks.spec(name="plain"))
        done = forks.ask("fork", f"{plain}@{at}", "train.average={decay: 1}")
        assert "kept no average: it begins with the weights" in done.stderr and done.stderr.count("\n") == 1, done.stderr
        fork = done.stdout.strip()
        assert forks.end(fork)["weights"] == forks.status(plain)["weights_sha256"]
        for version in (STEPS, at, 0):  # 0: what it began with
            assert exported(fork, version, "--average") == exported(plain, at), version


def test_a_fork_outlives_the_coordinator_that_made_it():
    with Folder() as folder, Forks(folder) as forks:
        run, step = forks.parent(forks.spec())
        expected = forks.end(run)
        forks.gate.stop_at(step)
        fork = forks.fork(f"{run}@{step}")
        forks.cluster.coordinator.__exit__()
        forks.cluster.start_coordinator()
        forks.gate.open()
        assert_goes_on(forks.end(fork), expected, step)
        assert forks.status(fork)["parent"] == run


def test_a_coordinator_that_dies_while_it_makes_a_fork_leaves_a_whole_one_or_nothing():
    with Folder() as folder, Forks(folder) as forks:
        run, step = forks.parent(forks.spec())
        expected, known, left = forks.end(run), {run}, set()
        records = folder.file("store/records/runs")
        for at in range(5, 100):  # of each time that a file or a folder of the runs is synced: before it, and after it
            with Folder() as own:
                shim = Shim(own, at, records, call=CALLS.index("sync"), is_armed=False)
                variables = dict(part.split("=", 1) for part in shim.command[1:])
                forks.cluster.coordinator.__exit__()
                forks.cluster.start_coordinator(env={**os.environ, **variables})
                wait_for(lambda: len(forks.cluster.json("servers")) == 2, "the servers")
                shim.arm()
                done = subprocess.run([program("weir"), "fork", f"{run}@{step}", "--coordinator", forks.cluster.address],
                                      capture_output=True, text=True, timeout=PATIENCE, check=False)
                if done.returncode:
                    forks.cluster.coordinator.wait()
                forks.cluster.coordinator.__exit__()
                left |= {name for name in os.listdir(records) if os.path.exists(f"{records}/{name}/checkpoints")
                         and not os.path.exists(f"{records}/{name}/run")}
            forks.cluster.start_coordinator()
            forks.ask("gc")
            made = {entry["run"] for entry in forks.cluster.json("runs")} - known
            assert len(made) <= 1 and (done.returncode or made == {done.stdout.strip()}), (at, made, done)
            for fork in made:
                assert_goes_on(forks.end(fork), expected, step)
                assert forks.steps(fork)[0] == step
            known |= made
            if done.returncode == 0:
                break
        assert left and len(known) > 1, "no crash came between the base and the record"
        assert not any(glob.glob(f"{records}/{name}/checkpoints/*") for name in left), "a base is there for ever"


def test_a_fork_rolls_back_to_its_base_while_it_has_no_other_checkpoint():
    with Folder() as folder, Forks(folder) as forks:
        run, step = forks.parent(forks.spec(ADAM))
        expected = forks.end(run)
        forks.gate.stop_at(step + 7)
        fork = forks.fork(f"{run}@{step}", "checkpoint={every_steps: 1000}")
        forks.stands(fork, step + 7)
        assert forks.steps(fork) == [step]
        forks.cluster.servers[1][0].__exit__()
        forks.cluster.restart_server(1)
        wait_for(lambda: forks.status(fork)["incarnation"] > 0, "a roll-back")
        forks.gate.open()
        metrics = folder.file("rolled.jsonl")
        forks.ask("watch", fork, "--metrics", metrics)
        steps = [(event.get("incarnation", 0), event["step"]) for event in read_metrics(metrics) if event["event"] == "step"]
        assert steps[0] == (0, step) and (1, step) in steps and min(steps)[1] == step, steps
        assert forks.status(fork)["weights_sha256"] == expected["weights"]
        assert forks.steps(fork) == [step, STEPS]


def test_a_fork_does_not_need_its_parent():
    """Neither the run, which is deleted, nor its checkpoint, which is not kept while it goes on."""
    with Folder() as folder, Forks(folder) as forks:
        run, step = forks.parent(forks.spec(ADAM))
        expected = forks.end(run)
        forks.ask("gc")
        outline = set(forks.stored()) - forks.named(run)  # which the run's record names, and no manifest
        assert len(outline) == 1, outline
        forks.gate.stop_at(step + 3)
        fork = forks.fork(f"{run}@{step}", "checkpoint={every_steps: 1000, keep: 1}")
        forks.stands(fork, step + 3)
        forks.ask("gc", run)
        forks.refused("no run", "status", run)
        assert set(forks.stored()) == outline | forks.named(fork)
        assert forks.ask("verify", fork).stdout.startswith(f"step {step}: whole")
        for server, _ in forks.cluster.servers:
            server.__exit__()
        for number in (0, 1):
            forks.cluster.restart_server(number)
        wait_for(lambda: forks.status(fork)["incarnation"] > 0, "a roll-back")
        forks.gate.open()
        assert forks.end(fork)["weights"] == expected["weights"]
        # every checkpoint of its own, however many there are: the base stays
        many = forks.fork(f"{fork}@{step}", "checkpoint={every_seconds: 0.001, keep: 1}", "train.steps=2000")
        wait_for(lambda: len(forks.steps(many)) == 2 and forks.steps(many)[1] > step + 50, "checkpoints of the fork")
        assert forks.steps(many)[0] == step
        forks.ask("cancel", many)
        # a parent that goes on, and no longer keeps the checkpoint
        parent = forks.fork(f"{many}@{step}", "train.steps=1000000", "checkpoint={every_steps: 50, keep: 3}")
        wait_for(lambda: len(forks.steps(parent)) == 4, "checkpoints of the parent")
        forks.gate.stop_at(0)  # wherever it is, so that its newest checkpoint is not dropped before it is read
        last = forks.fork(parent, "name=last")
        forks.gate.open()
        base = forks.status(last)["parent_step"]
        wait_for(lambda: base not in forks.steps(parent), "the parent's later checkpoints")
        assert base in forks.steps(last) and base > step
        assert f"step {base}: whole" in forks.ask("verify", last, "--step", base).stdout
        for left in (parent, last):
            forks.ask("cancel", left)


def test_what_a_fork_cannot_do_is_said():
    groups = "{name: sgd, lr: 0.05, momentum: 0.9, groups: [{params: ['*.bias'], lr: 0.1}]}"
    with Folder() as folder, Forks(folder) as forks:
        forks.gate.stop_at(0)
        early = forks.submit(forks.spec(name="early"))
        forks.refused(f"run '{early}' has no checkpoint yet", "fork", early)
        forks.ask("cancel", early)
        run, step = forks.parent(forks.spec(groups))
        other, _ = forks.parent(forks.spec(groups, name="small-too"))
        at = f"{run}@{step}"
        runs = len(forks.cluster.json("runs"))
        forks.refused("no run 'nothing'", "fork", "nothing")
        forks.refused(f"is ambiguous: it may be {run}, {other}", "fork", "smal")
        forks.refused(f"has no checkpoint at step 7 (it has: {step}, ", "fork", f"{run}@7")
        forks.refused("'x' in", "fork", f"{run}@x")
        forks.refused("train.optimizer.lrr=0.1: unknown key 'lrr' in train.optimizer: did you mean 'lr'?", "fork", at,
                      "train.optimizer.lrr=0.1")
        forks.refused("'lr' is no PATH=VALUE", "fork", at, "lr")
        forks.refused("train.optimizer.lr: must be", "fork", at, "train.optimizer.lr=-1")
        forks.refused("train.optimizer.name: unknown optimizer 'adman'", "fork", at, "train.optimizer.name=adman")
        forks.refused("needs either epochs or steps", "fork", at, "train.steps=null")
        forks.refused(f"would end with step {step}, and begins at {step}", "fork", at, f"train.steps={step}")
        forks.refused("name", "fork", at, "--name", "No Name")
        for setting in ("train.batch=48", "train.microbatches=4", "train.seed=4", "train.precision=bf16",
                        "train.deterministic=false", "model.onnx=other.onnx", "model.frozen=['*.bias']", "data.root=/tmp",
                        "data.shuffle=false", "data.transforms=[{scale: 0.5}]", "train.optimizer.groups=[]",
                        "train.optimizer.groups[0].params=['*']", "train.optimizer.groups[0].frozen=true"):
            error = forks.ask("fork", at, setting, status=2).stderr
            assert error.count("\n") == 1 and "weir submit SPEC --from RUN@STEP" in error, error
            assert setting.split("=")[0].split("[0]")[0].rsplit(".", 1)[0] in error, error
        forks.refused("eval.metrics", "fork", at, "eval.metrics=[nonsense]")
        forks.refused("workers.cuts", "fork", at, "workers.stages=2", "workers.cuts=[nowhere]")
        assert len(forks.cluster.json("runs")) == runs, "a fork that was refused is there"
        assert not forks.ask("fork", at, "train.optimizer.groups[0].lr=0.2", "train.batch=24").stderr


def test_a_fork_whose_base_is_lost_says_so():
    with Folder() as folder, Forks(folder) as forks:
        run, step = forks.parent(forks.spec())
        forks.gate.stop_at(step + 2)
        fork = forks.fork(f"{run}@{step}", "checkpoint={every_steps: 1000}")
        forks.stands(fork, step + 2)
        os.unlink(folder.file(f"store/records/runs/{fork}/checkpoints/{step:020}"))
        forks.cluster.servers[0][0].__exit__()
        forks.cluster.restart_server(0)
        status = wait_for(lambda: (found := forks.status(fork))["state"] == "failed" and found, "its failure")
        assert f"lost the checkpoint of step {step} at which this fork of {run} began" in status["message"], status


if __name__ == "__main__":
    main(globals())
