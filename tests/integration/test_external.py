"""Models whose tensors lie in files beside them: what is trained, measured and exported is what the same model gives in one
file; what the store has is not sent again; a file that is not what it should be is refused in one line."""
import json
import os
import subprocess

from external_model import make_external
from harness import PEER_PYTHON, Cluster, Folder, Skip, main, outcome, weir
from test_bad_input import refused
from test_parity import read_tensors

MLP = ("mlp", "--input", "1,28,28", "--hidden", "300,300", "--classes", "10", "--seed", "5")
STEPS = 12
HERE = os.path.dirname(os.path.abspath(__file__))


def stored_blocks(folder):
    """The names of the store's blocks."""
    found = set()
    for _, _, names in os.walk(folder.file("store/blocks")):
        found.update(names)
    return found


class Models:
    """The same model in one file, and with its large tensors (or all) in another."""

    def __init__(self, folder, least=0):
        self.folder = folder
        os.mkdir(folder.file("apart"))
        self.whole = folder.model(*MLP)
        self.apart = folder.file("apart/mlp.onnx")
        self.data = folder.file("apart/weights.bin")
        self.places = make_external(self.whole, self.apart, least)
        folder.small_data(240, 48)

    def spec(self, name, model, more=""):
        with open(self.folder.small_spec(model, 4, STEPS, 6)) as file:
            text = file.read().replace("loss: cross_entropy", "loss: cross_entropy" + more)
        return self.folder.file(name + ".yaml", text)

    def train(self, name, model, more=""):
        metrics = self.folder.file(name + ".jsonl")
        weir("train", self.spec(name, model, more), "--out", self.folder.file(name), "--metrics", metrics, "--threads", 1)
        return outcome(metrics)

    def read(self, name):
        with open(self.folder.file(name), "rb") as file:
            return file.read()


def test_a_model_with_external_data_is_the_model_in_one_file():
    for least in (0, 1 << 16):
        for more in ("", ", frozen: [fc1.weight]"):
            with Folder() as folder:
                models = Models(folder, least)
                assert models.train("whole", models.whole, more) == models.train("apart", models.apart, more)
                assert models.read("whole/model.safetensors") == models.read("apart/model.safetensors")
                weir("eval", folder.file("apart"), "--json")


def test_exports_of_a_run_and_of_its_store_are_the_same():
    with Folder() as folder:
        models = Models(folder)
        spec = models.spec("run", models.apart, ", frozen: [fc1.weight]")
        with Cluster(folder, servers=2, workers=2) as cluster:
            run = weir("submit", spec, "--follow", "--coordinator", cluster.address).stdout.split()[0]
            where = {"asked": ("--coordinator", cluster.address), "stored": ("--store", cluster.store)}
            for name, place in where.items():
                for step in (0, STEPS):
                    for ending in ("onnx", "safetensors"):
                        weir("export", run, "--step", step, "-o", folder.file(f"{name}-{step}.{ending}"), *place)
            weir("eval", run, "--coordinator", cluster.address)
            assert weir("verify", run, "--coordinator", cluster.address)
        for end in ("0.onnx", "0.safetensors", f"{STEPS}.onnx", f"{STEPS}.safetensors"):
            assert models.read("asked-" + end) == models.read("stored-" + end), end
        for begun in read_tensors(folder.file("asked-0.safetensors")):
            assert begun != "fc1.weight"


def test_onnxruntime_computes_the_same_with_the_tensors_beside_the_file():
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    with Folder() as folder:
        models = Models(folder)
        for name, more, where in (("run", "", "here"), ("frozen", ", frozen: [fc1.weight]", "there")):
            models.train(name, models.apart, more)
            store = ("--store", "file://" + folder.file(name + "/store"))
            os.makedirs(folder.file(where))
            weir("export", "small", "-o", folder.file(where + "/whole.onnx"), *store)
            weir("export", "small", "--external-data", "-o", folder.file(where + "/apart.onnx"), *store)
            found = subprocess.run([PEER_PYTHON, os.path.join(HERE, "peer_external.py"), folder.file(where + "/whole.onnx"),
                                    folder.file(where + "/apart.onnx")], capture_output=True, text=True, check=False)
            assert found.returncode == 0, found.stderr[-2000:]
            assert json.loads(found.stdout) == ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight", "head.weight"], found.stdout
        refused("export", "small", "--external-data", "-o", folder.file("x.safetensors"), *store,
                words=["--external-data is for .onnx"])


def test_pieces_are_kept_once_and_go_with_the_last_run():
    with Folder() as folder:
        models = Models(folder)
        spec = models.spec("run", models.apart)
        with Cluster(folder, workers=1) as cluster:
            blocks = []
            for _ in range(2):
                weir("submit", spec, "--follow", "--coordinator", cluster.address)
                blocks.append(stored_blocks(folder))
            runs = [run["run"] for run in cluster.json("runs")]
            assert len(runs) == 2
            # The second run computed the same: all that it added were names of what was there.
            assert blocks[0] == blocks[1], blocks
            weir("gc", runs[0], "--coordinator", cluster.address)
            assert stored_blocks(folder) == blocks[0], "the other run still needs them"
            weir("gc", runs[1], "--coordinator", cluster.address)
            assert stored_blocks(folder) == set()


def test_bad_external_files_are_refused_in_one_line():
    with Folder() as folder:
        models = Models(folder)
        spec = models.spec("bad", models.apart)
        size = os.path.getsize(models.data)
        os.truncate(models.data, size - 1)
        refused("train", spec, words=["mlp.onnx: tensor '", "weights.bin: cut short"])
        os.rename(models.data, models.data + ".away")
        refused("train", spec, words=["mlp.onnx: tensor '", "weights.bin: No such file"])
        os.symlink("/etc/hostname", models.data)
        refused("train", spec, words=["tensor '", "weights.bin is a link that leads outside the model's folder"])
        os.unlink(models.data)
        os.mkfifo(models.data)
        refused("train", spec, words=["weights.bin: is not a file but a pipe or a device"])
        with open(models.apart, "rb") as file:
            model = file.read()
        for location in (b"../weights.", b"/etc/passwd"):
            with open(models.apart, "wb") as file:
                file.write(model.replace(b"weights.bin", location))
            refused("train", spec, words=["mlp.onnx: tensor '", "has its data outside the model's folder", location.decode()])


if __name__ == "__main__":
    main(globals())
