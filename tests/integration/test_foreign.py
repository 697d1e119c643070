"""Workers that are no part of Weir: programs of others compute beside ours, by the package of examples/python."""
import json
import os
import signal
import subprocess

from certificates import Authority
from gate import Gate
from harness import PATIENCE, ROOT, Cluster, Folder, Process, Skip, done_event, main, newest_step, program, read_metrics, wait_for, weir
from test_python import PYTHON
from test_tls import DATA_ROOT, secured, write_spec
from test_tickets import Attacker, text_field, varint_field

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = os.environ.get("WEIR_TORCH_PYTHON", os.path.join(ROOT, "build", "torch", "bin", "python"))
FREE = ("train.deterministic=false",)
LOSS_MARGIN = 1e-4  # what differs is rounding, which so few steps do not amplify


def foreign(address, *options, python=PYTHON, script="foreign_mlp.py"):
    if not os.path.exists(python):
        raise Skip("the environment of examples/python is missing")
    return Process(python, os.path.join(HERE, script), address, *options)


def joined(cluster, n, *tls):
    wait_for(lambda: len(json.loads(weir("workers", "--coordinator", cluster.address, *tls, "--json").stdout)) == n, f"{n} workers")


def evals(path):
    """The last of each version: a run that was rolled back has some of them twice."""
    last = {event["step"]: (event["loss"], event["accuracy"]) for event in read_metrics(path) if event["event"] == "eval"}
    return [(step, *last[step]) for step in sorted(last)]


def train_alone(folder):
    """What the run is with workers of ours alone."""
    metrics = folder.file("alone.jsonl")
    weir("train", write_spec(folder), *FREE, "--out", folder.file("alone"), "--metrics", metrics, "--threads", 1)
    return evals(metrics)


def assert_alike(found, wanted):
    assert [step for step, *_ in found] == [step for step, *_ in wanted], (found, wanted)
    assert found[-1][1] < 0.9 * found[0][1], f"it does not learn: {found}"
    for (step, loss, _), (_, other, _) in zip(found, wanted):
        assert abs(loss - other) < LOSS_MARGIN, (step, loss, other)


def test_a_foreign_worker_computes_beside_ours_and_alone():
    with Folder() as folder:
        authority, wanted = Authority(folder), train_alone(folder)
        with secured(folder, authority, servers=2, workers=0) as cluster:
            tls, gate = ("--tls", authority.folder("client")), Gate(folder)
            cluster.gate = gate
            ours = cluster.add_worker(options=("--tls", authority.folder("worker")))
            with foreign(cluster.address, authority.folder("worker")) as other:
                joined(cluster, 2, *tls)
                beside, alone = folder.file("beside.jsonl"), folder.file("alone-too.jsonl")
                gate.stop_at(0)  # either is given what the other is late with: ours does not come to the end alone
                with Process(program("weir"), "submit", write_spec(folder), *FREE, "workers.min=2", "--follow", "--metrics", beside,
                             "--coordinator", cluster.address, *tls) as follower:
                    wait_for(lambda: "trained" in other.output(), "a microbatch of the other")
                    gate.open()
                    assert follower.wait() == 0, follower.output()[-2000:]
                assert_alike(evals(beside), wanted)
                n = other.output().count("trained")
                assert " worker loaded " in ours.output(), ours.output()
                ours.send(signal.SIGTERM)
                ours.wait()
                weir("submit", write_spec(folder), *FREE, "--follow", "--metrics", alone, "--coordinator", cluster.address, *tls)
                assert_alike(evals(alone), wanted)
                assert other.output().count("trained") >= n + 48 and "evaluated" in other.output(), other.output()


def test_a_run_goes_on_without_a_foreign_worker_that_is_killed():
    with Folder() as folder:
        gate, metrics, wanted = Gate(folder), folder.file("metrics.jsonl"), train_alone(folder)
        with Cluster(folder, workers=1, gate=gate) as cluster, foreign(cluster.address) as other:
            joined(cluster, 2)
            gate.stop_at(3)  # what ours pushes of later steps waits, so the other's part of step 3 is there and that of 4 begins
            with Process(program("weir"), "submit", write_spec(folder), *FREE, "workers.min=2", "--follow", "--metrics", metrics,
                         "--coordinator", cluster.address) as follower:
                wait_for(lambda: newest_step(metrics) >= 3 and "trained" in other.output(), "the run to stand")
                other.send(signal.SIGKILL)
                other.child.wait()
                gate.open()
                assert follower.wait() == 0, follower.output()[-2000:]
            assert_alike(evals(metrics), wanted)
            assert done_event(metrics)["steps"] == 12


def test_a_foreign_worker_makes_up_for_one_of_ours_that_is_killed():
    with Folder() as folder:
        gate, metrics, wanted = Gate(folder), folder.file("metrics.jsonl"), train_alone(folder)
        with Cluster(folder, workers=1, gate=gate) as cluster, foreign(cluster.address) as other:
            joined(cluster, 2)
            gate.stop_at(3)  # what ours pushes of step 4 never arrives
            with Process(program("weir"), "submit", write_spec(folder), *FREE, "workers.min=2", "--follow", "--metrics", metrics,
                         "--coordinator", cluster.address) as follower:
                wait_for(lambda: newest_step(metrics) >= 3, "the run to stand")
                cluster.workers[0].send(signal.SIGKILL)
                cluster.workers[0].wait()
                assert follower.wait() == 0, follower.output()[-2000:]
            assert_alike(evals(metrics), wanted)
            assert other.output().count("trained") >= 8 * 4, other.output()  # from step 4 on all of them


def test_a_foreign_worker_outlives_the_coordinator_and_a_server():
    with Folder() as folder:
        gate, metrics, wanted = Gate(folder), folder.file("metrics.jsonl"), train_alone(folder)
        with Cluster(folder, workers=1, gate=gate) as cluster, foreign(cluster.address) as other:
            joined(cluster, 2)
            gate.stop_at(3)
            with Process(program("weir"), "submit", write_spec(folder), *FREE, "workers.min=2", "--follow", "--metrics", metrics,
                         "--coordinator", cluster.address) as follower:
                wait_for(lambda: newest_step(metrics) >= 3, "the run to stand")
                cluster.coordinator.send(signal.SIGKILL)
                cluster.coordinator.wait()
                cluster.start_coordinator()
                joined(cluster, 2)
                cluster.servers[0][0].send(signal.SIGKILL)
                cluster.servers[0][0].wait()
                cluster.restart_server(0)
                wait_for(lambda: "trained" in other.output().partition("the coordinator " + cluster.address)[2],
                         "work of the other under the new coordinator")  # it gets some, as what ours pushes of step 4 waits
                gate.open()
                assert follower.wait() == 0, follower.output()[-2000:]
            assert_alike(evals(metrics), wanted)
            assert other.child.poll() is None, other.output()


def test_a_foreign_worker_gets_no_run_that_it_may_not_compute():
    with Folder() as folder:
        with Cluster(folder, workers=0) as cluster, foreign(cluster.address) as other:
            joined(cluster, 1)
            at = ("--coordinator", cluster.address)

            def message(run):
                return json.loads(weir("status", run, "--json", *at).stdout)["message"]

            for settings, wanted in (((), "is another program than weir-worker"), ((*FREE, "workers.stages=2"), "is another program"),
                                     ((*FREE, "data.sampler=weighted"), "data.sampler: which samples 'weighted' draws is not told"),
                                     ((*FREE, "data.transforms=[{horizontal_flip: {}}]"), "horizontal_flip: this worker does not know it"),
                                     ((*FREE, "eval.metrics=[top5]"), "eval.metrics")):
                run = weir("submit", write_spec(folder), *settings, *at).stdout.strip()
                wait_for(lambda: wanted in message(run), f"{settings}: {wanted}; it says '{message(run)}'")
                weir("cancel", run, *at)
            assert other.child.poll() is None and "trained" not in other.output(), other.output()


def test_a_foreign_worker_of_a_tenant_computes_that_tenants_runs_alone():
    with Folder() as folder:
        authority = Authority(folder)
        for role, tenant in (("worker", "vision"), ("client", "vision"), ("client", "nlp")):
            weir("certs", "issue", "--ca", authority.path, "--role", role, "--tenant", tenant, folder.file(f"{role}-{tenant}"))
        with secured(folder, authority, servers=1, workers=0) as cluster, foreign(cluster.address, folder.file("worker-vision")) as other:
            at = ("--coordinator", cluster.address, "--tls")
            joined(cluster, 1, "--tls", authority.folder("all"))
            hidden = weir("submit", write_spec(folder), *FREE, "priority=5", *at, folder.file("client-nlp")).stdout.strip()
            weir("submit", write_spec(folder), *FREE, "--follow", *at, folder.file("client-vision"))
            assert 48 <= other.output().count("trained") < 2 * 48, other.output()  # a slow machine may have it compute some again
            status = json.loads(weir("status", hidden, "--json", *at, folder.file("client-nlp")).stdout)
            assert status["state"] == "queued" and status["workers"] == 0, status


def batch_of(run, step=0, microbatch=0, evaluation=False):
    return text_field(1, run) + varint_field(2, step) + varint_field(3, microbatch) + varint_field(4, evaluation)


def test_only_a_runs_own_workers_are_told_its_layout_and_batches():
    with Folder() as folder:
        authority = Authority(folder)
        weir("certs", "issue", "--ca", authority.path, "--role", "worker", "--tenant", "nlp", folder.file("nlp"))
        with secured(folder, authority, servers=1, workers=1) as cluster:
            tls = ("--coordinator", cluster.address, "--tls", authority.folder("client"))
            run = weir("submit", write_spec(folder), "data.transforms=[{horizontal_flip: {}}]", *tls).stdout.strip()
            forged = f"{run}/0/1/" + 64 * "0"
            wanted = {("worker", None): "no ticket", ("worker", "x"): "ticket", ("worker", forged): "ticket", ("nlp", forged): "no run"}
            for (certificate, ticket), text in wanted.items():
                with Attacker(folder.file(certificate) if certificate == "nlp" else authority.folder(certificate)) as attacker:
                    for path in ("Cluster/FetchLayout", "Cluster/FetchBatch"):
                        status, details, reply = attacker.call("coordinator.weir", cluster.address, path, ticket, text_field(1, run))
                        assert status in ("PERMISSION_DENIED", "NOT_FOUND") and text in details and not reply, (path, ticket, status, details)
            wait_for(lambda: json.loads(weir("status", run, "--json", *tls).stdout)["state"] == "done", "the run's end")
            with Attacker(authority.folder("client")) as client:
                def ask(*of, **more):
                    return client.call("coordinator.weir", cluster.address, "Training/GetBatch", None, batch_of(*of, **more))
                assert ask(run)[0] == "UNIMPLEMENTED" and "data.transforms[0]: what it draws at random is not told" in ask(run)[1], ask(run)
                assert ask(run, 6, evaluation=True)[0] == "OK"
                for of, text in (((run, 5), "version 5 is not evaluated"), ((run, 6, 1), "there is no eval chunk 1, the plan has 1"),
                                 ((run, 13), "version 13 is not evaluated")):
                    status, details, _ = ask(*of, evaluation=True)
                    assert status == "INVALID_ARGUMENT" and text in details, (of, status, details)


def test_a_worker_on_pytorch_trains_lenet_beside_ours():
    if not os.path.exists(TORCH):
        raise Skip("PyTorch's environment, build/torch, is missing")
    with Folder() as folder:
        data, metrics, alone = Folder(), folder.file("metrics.jsonl"), folder.file("alone.jsonl")
        data.path = DATA_ROOT.name
        data.small_data(1200, 200)
        spec = data.small_spec(folder.model("lenet", "--batch-norm"), 4, 40, 20)
        weir("train", spec, *FREE, "--out", folder.file("alone"), "--metrics", alone, "--threads", 1)
        with Cluster(folder, workers=1) as cluster, Process(
                TORCH, os.path.join(ROOT, "examples", "python", "lenet_worker.py"), "--coordinator", cluster.address) as other:
            joined(cluster, 2)
            run = weir("submit", spec, *FREE, "workers.min=2", "--follow", "--metrics", metrics, "--coordinator", cluster.address).stdout
            assert evals(metrics)[-1][1] < 0.9 * evals(metrics)[0][1], evals(metrics)
            for (step, loss, accuracy), (_, wanted, reached) in zip(evals(metrics), evals(alone)):
                assert abs(loss - wanted) < 0.1 and abs(accuracy - reached) < 0.05, (step, loss, wanted, accuracy, reached)
            assert other.child.poll() is None, other.output()


ONNX_MODELS = (("lenet", "--batch-norm"), ("vit", "--input", "1,28,28", "--patch", 14, "--width", 16, "--depth", 1, "--heads", 2, "--classes", 10))


def test_a_worker_that_reads_the_runs_onnx_file_computes_what_ours_do():
    if not os.path.exists(TORCH):
        raise Skip("PyTorch's environment, build/torch, is missing")
    with Folder() as folder, Cluster(folder, workers=0) as cluster, Process(
            TORCH, os.path.join(ROOT, "examples", "python", "onnx_worker.py"), "--coordinator", cluster.address) as other:
        folder.small_data(240, 48)
        joined(cluster, 1)
        for kind, *options in ONNX_MODELS:
            spec, metrics, alone = (folder.small_spec(folder.model(kind, *options), 2, 6, 3), folder.file(f"{kind}.jsonl"),
                                    folder.file(f"{kind}-alone.jsonl"))
            weir("train", spec, *FREE, "--out", folder.file(f"{kind}-alone"), "--metrics", alone, "--threads", 1)
            weir("submit", spec, *FREE, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
            assert [step for step, *_ in evals(metrics)] == [3, 6], evals(metrics)
            for (step, loss, _), (_, wanted, _) in zip(evals(metrics), evals(alone)):
                assert abs(loss - wanted) < 1e-3, (kind, step, loss, wanted)
        assert other.child.poll() is None, other.output()


def test_operators_that_a_worker_on_pytorch_does_not_compute_are_named():
    if not os.path.exists(TORCH):
        raise Skip("PyTorch's environment, build/torch, is missing")
    script = """
from weir.onnx_program import OnnxProgram
from weir.pb.onnx_file_pb2 import Graph, Model, Node
from weir.worker import Refused
nodes = [Node(op_type=name, domain=domain) for name, domain in (("Relu", ""), ("Col2Im", ""), ("Attention", "com.microsoft"))]
try:
    OnnxProgram().read(Model(graph=Graph(node=nodes)).SerializeToString(), None)
except Refused as refused:
    print(refused)
"""
    said = subprocess.run([TORCH, "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    assert said == "the model has operators that this program does not compute: Col2Im, com.microsoft.Attention\n", said


if __name__ == "__main__":
    main(globals())
