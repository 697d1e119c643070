#!/usr/bin/env python3
"""What `make dist` packs, on a machine that has glibc and nothing else: a folder entered by chroot. What images are
made of."""
import atexit
import glob
import os
import re
import shutil
import subprocess
import tempfile

from harness import BUILD, PATIENCE, ROOT, Skip, main, program

GLIBC = ("libc.so.6", "libm.so.6", "libmvec.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2")
LIBRARIES = "/lib/x86_64-linux-gnu"
SPEC = """name: tiny
model: {onnx: /tmp/mlp.onnx, loss: cross_entropy}
data:
  root: /tmp
  train: {format: csv, file: data.csv, columns: {dense: "a,b", labels: c}}
train: {steps: 6, batch: 8, microbatches: 2, seed: 1, optimizer: {lr: 0.1}}
"""


class Root:
    """An empty root with glibc and the unpacked tarball in /opt; made once."""
    shared = None

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="weir-dist-")
        atexit.register(shutil.rmtree, self.path, ignore_errors=True)
        for folder in ("lib64", LIBRARIES[1:], "opt", "tmp", "proc", "dev"):
            os.makedirs(os.path.join(self.path, folder), exist_ok=True)
        shutil.copy("/lib64/ld-linux-x86-64.so.2", os.path.join(self.path, "lib64"))
        for name in GLIBC:
            shutil.copy(os.path.join(LIBRARIES, name), self.path + LIBRARIES)
        done = subprocess.run([os.path.join(ROOT, "docker", "pack.sh"), BUILD, self.path], capture_output=True, text=True,
                              check=False, env=dict(os.environ, CUDA="0", DIST_GZIP="-1"))
        assert done.returncode == 0, done.stderr
        subprocess.run(["tar", "-xzf", done.stdout.strip(), "-C", os.path.join(self.path, "opt")], check=True)
        self.home, = glob.glob(os.path.join(self.path, "opt", "weir-*"))

    @classmethod
    def get(cls):
        if os.geteuid() != 0:
            raise Skip("only root can enter another root")
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
            raise Skip("mount namespaces are not allowed here")
        cls.shared = cls.shared or cls()
        return cls.shared

    def run(self, name, *arguments):
        """Runs bin/NAME inside, with this machine's /proc and /dev; returns what it prints."""
        enter = 'mount --bind /proc "$0/proc" && mount --rbind /dev "$0/dev" && cd / && exec chroot "$0" "$@"'
        inside = "/" + os.path.relpath(os.path.join(self.home, "bin", name), self.path)
        done = subprocess.run(["unshare", "--mount", "sh", "-c", enter, self.path, inside, *arguments], text=True,
                              capture_output=True, check=False, timeout=PATIENCE,
                              env={"PATH": "/usr/bin:/usr/sbin", "HOME": "/tmp"})
        assert done.returncode == 0, f"{name} {' '.join(arguments)}: {done.stdout[-1000:]}{done.stderr[-2000:]}"
        return done.stdout


def test_programs_run_where_only_glibc_is():
    root = Root.get()
    ours = subprocess.run([program("weir"), "version"], capture_output=True, text=True, check=True).stdout
    assert root.run("weir", "version") == ours
    for name in ("weir-server", "weir-worker"):
        assert "weir" in root.run(name, "--version")


def test_a_model_is_made_and_trained_where_only_glibc_is():
    root = Root.get()
    root.run("weir", "model", "mlp", "--input", "2", "--hidden", "4", "--classes", "2", "-o", "/tmp/mlp.onnx")
    with open(os.path.join(root.path, "tmp", "data.csv"), "w") as file:
        file.write("a,b,c\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(48)))
    with open(os.path.join(root.path, "tmp", "spec.yaml"), "w") as file:
        file.write(SPEC)
    printed = root.run("weir", "train", "/tmp/spec.yaml", "--out", "/tmp/out", "--workers", "2")
    assert os.path.exists(os.path.join(root.path, "tmp", "out", "model.onnx")), printed


def test_conformance_programs_find_their_libraries_where_only_glibc_is():
    printed = Root.get().run("tests/conformance/op_test", "ref", "Abs")
    assert "not ok" not in printed and "ok 1" in printed


def test_whatever_the_gpu_suite_runs_is_there():
    root = Root.get()
    with open(os.path.join(root.home, "tests", "gpu", "check.sh")) as file:
        named = set(re.findall(r"conformance/\w+|tests/\w+/test_\w+\.py|tests/run\.py", file.read()))
    assert len(named) > 5
    for name in named:
        path = os.path.join("bin/tests" if name.startswith("conformance") else "", name)
        assert os.path.exists(os.path.join(root.home, path)), name


def test_the_gpu_suite_runs_from_the_tarball():
    done = subprocess.run([os.path.join(Root.get().home, "gpu-check"), "chain_test"], capture_output=True, text=True,
                          check=False, timeout=PATIENCE)
    assert re.search(r"^\d+ passed, 0 failed, \d+ skipped$", done.stdout, re.M) and done.returncode == 0, \
        done.stdout + done.stderr


def test_every_library_has_its_license_and_cuda_stays_outside():
    root = Root.get()
    libraries = os.listdir(os.path.join(root.home, "lib"))
    licenses = os.listdir(os.path.join(root.home, "licenses"))
    assert "libgrpc.so.29" in libraries and "libgrpc29" in licenses and "libdnnl2" in licenses
    for name in libraries:
        assert not name.startswith(("libc.so", "libm.so", "ld-linux", "libcuda", "libcublas", "libcudnn", "libnccl")), name


def test_images_copy_what_is_there_and_what_their_make_reads():
    with open(os.path.join(ROOT, "Makefile")) as file:
        included = {path for line in file if line.startswith("include ") for path in line.split()[1:]}
    for name in ("Dockerfile", "Dockerfile.cuda"):
        copied = set()
        with open(os.path.join(ROOT, "docker", name)) as file:
            for words in map(str.split, file):
                if words[:1] == ["COPY"] and not words[1].startswith("--"):
                    copied.update(words[1:-1])
                if words[:3] == ["RUN", "make", "deps"]:
                    assert included <= copied, f"{name}: make deps needs {included - copied}"
        for path in copied:
            assert os.path.exists(os.path.join(ROOT, path)), f"{name}: there is no {path}"


if __name__ == "__main__":
    main(globals())
