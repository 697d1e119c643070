"""The package of examples/python, installed as a user would, beside our own client: on a cluster that takes certificates alone."""
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import time

from certificates import Authority
from gate import Gate
from harness import PATIENCE, ROOT, Cluster, Folder, Process, Skip, main, wait_for, weir
from proxy import Proxy
from test_tls import secured, write_spec

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(ROOT, "build", "python", "bin", "python")
NOTEBOOK = os.path.join(ROOT, "examples", "python", "fashion_mnist.ipynb")


def python(script, *arguments, **environment):
    """Runs it to its end; returns its stdout."""
    if not os.path.exists(PYTHON):
        raise Skip("the environment of examples/python is missing")
    done = subprocess.run([PYTHON, os.path.join(HERE, script), *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=PATIENCE * 3, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def issue(folder, authority, name, *options):
    weir("certs", "issue", "--ca", authority.path, "--role", "client", *options, folder.file(name))
    return folder.file(name)


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + size])
    return {name: data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]]
            for name, entry in head.items() if name != "__metadata__"}


def read_npz(path):
    """Its arrays' bytes: those of .npy files behind their heads."""
    import zipfile
    with zipfile.ZipFile(path) as archive:
        found = {}
        for name in archive.namelist():
            data = archive.read(name)
            found[name.removesuffix(".npy")] = data[10 + struct.unpack("<H", data[8:10])[0]:]
        return found


def test_a_user_of_the_package_sees_what_our_client_says():
    with Folder() as folder:
        authority = Authority(folder)
        submitter = issue(folder, authority, "submitter", "--access", "submitter")
        issue(folder, authority, "viewer", "--access", "viewer")
        other = issue(folder, authority, "other", "--tenant", "nlp", "--access", "submitter")
        with secured(folder, authority, servers=2, workers=1) as cluster:
            at = ("--coordinator", cluster.address, "--tls")
            spec = write_spec(folder)
            hidden = weir("submit", spec, "train.steps=1", "eval.every_steps=1", *at, other).stdout.strip()
            os.mkdir(folder.file("out"))
            says = json.loads(python("python_user.py", cluster.address, folder.path, spec, hidden, folder.file("out")))
            run = says["run"]
            status = json.loads(weir("status", run, "--json", *at, submitter).stdout)
            assert status["weights_sha256"] == says["sha256"] == says["twin"], (status, says)
            assert says["untouched"] and says["again"], says
            check_rows(says["rows"], says["sha256"])
            assert [run, "DONE"] in says["listed"] and hidden not in [each for each, _ in says["listed"]], says["listed"]
            assert hidden in says["others"] and run not in says["others"], says["others"]
            assert says["cancelled"][0] and says["cancelled"][1][:2] == ["RunFailed", "CANCELLED"], says["cancelled"]
            check_batches(says["batches"])
            assert says["sequential"] == list(range(12, 24)), says["sequential"]
            assert sorted(sum(says["split"], []) + says["split_eval"]) == list(range(240)), "192 of 240 are trained on, and the others evaluated"
            assert sorted(says["split_eval"]) != list(range(192, 240)), says["split_eval"]
            check_errors(says["errors"])
            weir("export", run, "-o", folder.file("ours.safetensors"), *at, submitter)
            assert read_npz(folder.file("out/weights.npz")) == read_safetensors(folder.file("ours.safetensors"))
            weir("export", run, "-o", folder.file("ours.onnx"), *at, submitter)
            outlines = [weir("inspect", path).stdout.replace(path, "") for path in (folder.file("out/package.onnx"), folder.file("ours.onnx"))]
            assert outlines[0] == outlines[1], outlines


def check_rows(rows, sha256):
    """Of a run of 12 steps that is evaluated at 6 and 12."""
    assert [row["step"] for row in rows if row["event"] == "step"] == list(range(12)), rows
    assert [row["step"] for row in rows if row["event"] == "eval"] == [6, 12], rows
    assert rows[-1]["event"] == "done" and rows[-1]["weights_sha256"] == sha256 and rows[0]["loss"] > 0, rows


def check_batches(batches):
    """12 steps of 4 microbatches of 12 samples over 240: each epoch has every sample once, in an order of its own."""
    stream = [index for step in batches for microbatch in step for index in microbatch]
    epochs = [stream[at:at + 240] for at in range(0, 480, 240)]
    assert len(stream) == 12 * 48 and all(sorted(epoch) == list(range(240)) for epoch in epochs), stream
    assert epochs[0] != epochs[1] and epochs[0] != sorted(epochs[0])


def check_errors(errors):
    wanted = {"unknown run": ("NotFound", "no run 'nobody'"), "layout of an unknown run": ("NotFound", "no run 'nobody'"),
              "hidden run": ("NotFound", "no run"), "hidden layout": ("NotFound", "no run"), "no run": ("Invalid", "no run is named"),
              "step": ("Invalid", "there is no step 12, the run has 12"), "huge step": ("Invalid", "there is no step 18446744073709551615"),
              "microbatch": ("Invalid", "there is no microbatch 4, a step has 4"),
              "huge microbatch": ("Invalid", "there is no microbatch 4294967295"),
              "key": ("Invalid", "did you mean 'steps'?"), "value": ("Invalid", "train.steps: 'many' does not fit"),
              "optimizer": ("Invalid", "sgd"), "place": ("Invalid", "name.first=3"), "model": ("Invalid", "no.onnx"),
              "no model": ("Invalid", "this is no ONNX file"), "viewer": ("Denied", "submitter"), "other": ("NotFound", "no run"),
              "plaintext": ("Unavailable", ""), "elsewhere": ("Invalid", "10.0.0.7:7070 is not on this machine"),
              "folder": ("Invalid", "ca.pem")}
    assert set(errors) == set(wanted), errors
    for name, (kind, text) in wanted.items():
        assert errors[name] and errors[name][0] == kind and text in errors[name][2], (name, errors[name])


def test_the_notebook_trains_plots_and_exports():
    with Folder() as folder:
        authority = Authority(folder)
        with secured(folder, authority, servers=1, workers=1) as cluster:
            spec = write_spec(folder)
            shutil.copy(NOTEBOOK, folder.file("notebook.ipynb"))
            said = python("notebook.py", folder.file("notebook.ipynb"), f"spec={spec!r}", "changes={}", f"out={folder.file('out.onnx')!r}",
                          WEIR_COORDINATOR=cluster.address, WEIR_TLS=authority.folder("client"),
                          **{name: folder.path for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR")})
            outputs = [json.loads(line) for line in said.splitlines()]
            text = "".join(output["text"] for output in outputs)
            assert "'event': 'done'" in text and "'DONE'" in text and "unknown optimizer 'sdg'" in text, text
            assert any("image/png" in output["kinds"] for output in outputs), outputs
            weir("inspect", folder.file("out.onnx"))


FOLLOW = """
import json, sys, weir
with weir.connect(sys.argv[1]) as cluster:
    for row in cluster.follow(cluster.submit(sys.argv[2])):
        print(json.dumps(row), flush=True)
"""


def test_a_run_is_followed_across_a_coordinators_death():
    if not os.path.exists(PYTHON):
        raise Skip("the environment of examples/python is missing")
    with Folder() as folder:
        gate = Gate(folder)
        with Cluster(folder, is_patient=True, gate=gate) as cluster:
            gate.stop_at(3)
            with Process(PYTHON, "-c", FOLLOW, cluster.address, write_spec(folder)) as follower:
                wait_for(lambda: follower.output().count('"step"') >= 4, "the run to stand")
                cluster.coordinator.send(signal.SIGKILL)
                cluster.coordinator.wait()
                cluster.start_coordinator()
                gate.open()
                assert follower.wait() == 0, follower.output()[-2000:]
                rows = [json.loads(line) for line in follower.output().splitlines()]
            check_rows(rows, rows[-1]["weights_sha256"])


def test_connecting_may_take_longer_than_trying_again():
    if not os.path.exists(PYTHON):
        raise Skip("the environment of examples/python is missing")
    with Folder() as folder, Cluster(folder) as cluster:
        proxy = Proxy()
        proxy.target, proxy.held_until = cluster.address, math.inf
        with Process(PYTHON, "-c", "import sys, weir; print(weir.connect(sys.argv[1]).runs())", proxy.address) as caller:
            wait_for(lambda: proxy.pairs, "a connection")
            time.sleep(0.5)
            proxy.held_until = 0
            assert caller.wait() == 0 and caller.output().strip() == "[]", caller.output()[-2000:]


def test_the_notebook_is_kept_without_outputs():
    with open(NOTEBOOK) as file:
        cells = json.load(file)["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)


if __name__ == "__main__":
    main(globals())
