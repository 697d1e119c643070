"""Bad input gets one clear line and its exit status; a server or worker that is sent nonsense lives on."""
import gzip
import json
import os
import socket
import struct
import subprocess
import zlib

from external_model import BYTES, VARINT, message
from harness import PATIENCE, Cluster, Folder, done_event, main, program, wait_for, weir

# By the names of onnx.proto, apart where messages share one.
ONNX_FIELDS = {"ir_version": 1, "graph": 7, "opset_import": 8, "version": 2, "node": 1, "graph_name": 2, "initializer": 5,
               "graph_input": 11, "graph_output": 12, "input": 1, "output": 2, "name": 3, "op_type": 4, "attribute": 5,
               "attribute_name": 1, "ints": 8, "type": 20, "dims": 1, "data_type": 2, "tensor_name": 8, "raw_data": 9, "value_name": 1,
               "value_type": 2, "tensor_type": 1, "elem_type": 1, "shape": 2, "dim": 1, "dim_value": 1, "dim_param": 2}
TRAIN = "  steps: 2\n  batch: 16\n  microbatches: 2\n  optimizer: {lr: 0.1}\n"


def refused(*arguments, status=2, words=()):
    """The command ends with that status and one line on stderr that holds every word."""
    done = weir(*arguments, status=status)
    lines = [line for line in done.stderr.splitlines() if line.startswith("weir: ")]
    assert len(lines) == 1, f"one line is wanted: {done.stderr}"
    for word in words:
        assert word in lines[0], f"'{word}' is not in: {lines[0]}"
    return lines[0]


def idx(shape, payload, kind=8):
    return bytes([0, 0, kind, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + payload


def local_data(folder, images=None, labels=None):
    """A spec over ten tiny samples in the folder itself."""
    folder.file("images", images if images is not None else idx((10, 28, 28), bytes(10 * 784)))
    folder.file("labels", labels if labels is not None else idx((10,), bytes(range(10))))
    return folder.file("local.yaml", f"""name: local
model: {{onnx: {folder.model("mlp", "--hidden", "8")}}}
data:
  root: {folder.path}
  train: {{format: idx, images: images, labels: labels}}
train:
{TRAIN.replace("16", "10")}""")


def train(folder, spec, *options, **expected):
    return refused("train", spec, "--out", folder.file("out"), "--force", *options, **expected)


def test_a_model_file_that_is_none_is_refused():
    with Folder() as folder:
        text = folder.file("text.onnx", "hello, this is text and no model")
        refused("inspect", text, words=["text.onnx"])
        refused("train", folder.spec(text, train=TRAIN), words=["text.onnx"])
        refused("inspect", folder.file("empty.onnx", b""), words=["empty.onnx"])
        refused("inspect", folder.file("absent.onnx"), words=["absent.onnx", "No such file"])
        refused("inspect", folder.path, words=[folder.path, "Is a directory"])


def test_a_truncated_model_is_refused():
    with Folder() as folder:
        whole = open(folder.model("lenet"), "rb").read()
        for size in (10, len(whole) // 2, len(whole) - 1):
            refused("inspect", folder.file("cut.onnx", whole[:size]), words=["cut.onnx"])


def test_unsupported_operators_are_named_all_at_once():
    with Folder() as folder:
        model = open(folder.model("mlp", "--hidden", "16,8"), "rb").read()
        changed = model.replace(b"Relu", b"Rely")
        assert changed != model
        refused("inspect", folder.file("rely.onnx", changed), words=["/fc1.relu", "/fc2.relu", "Rely"])


def test_shapes_that_do_not_fit_are_named():
    with Folder() as folder:
        model = folder.model("mlp", "--input", "100")
        train(folder, folder.spec(model, train=TRAIN), words=["28", "100"])
        too_few = folder.model("mlp", "--classes", "4")
        train(folder, folder.spec(too_few, train=TRAIN), words=["labels", "4 classes"])


def col2im(folder, **changed):
    """A model of one node "fold", which puts windows of 2 x 2 onto images of 5 x 5."""
    lists = {"image_shape": [5, 5], "block_shape": [2, 2], **changed}
    node = [("input", "columns"), ("input", "image_shape"), ("input", "block_shape"), ("output", "y"), ("name", "fold"),
            ("op_type", "Col2Im")]
    graph = [onnx_part("node", [("input", "x"), ("input", "w"), ("output", "columns"), ("op_type", "Mul")]),
             onnx_part("node", node + [onnx_part("attribute", [("attribute_name", name), *[("ints", n) for n in numbers], ("type", 7)])
                                       for name, numbers in lists.items() if not name.endswith("_shape")]),
             ("graph_name", "g"),
             onnx_part("initializer", [("dims", 1), ("data_type", 1), ("tensor_name", "w"), ("raw_data", struct.pack("<f", 2))])]
    for name in ("image_shape", "block_shape"):
        graph.append(onnx_part("initializer", [("dims", len(lists[name])), ("data_type", 7), ("tensor_name", name),
                                               ("raw_data", struct.pack(f"<{len(lists[name])}q", *lists[name]))]))
    for part, name, dims in (("graph_input", "x", [4, 16]), ("graph_output", "y", [1, 5, 5])):
        shape = [onnx_part("dim", [("dim_param", "N")]), *[onnx_part("dim", [("dim_value", dim)]) for dim in dims]]
        tensor = onnx_part("tensor_type", [("elem_type", 1), onnx_part("shape", shape)])
        graph.append(onnx_part(part, [("value_name", name), onnx_part("value_type", [tensor])]))
    model = [("ir_version", 8), onnx_part("graph", graph), onnx_part("opset_import", [("version", 18)])]
    return folder.file("fold.onnx", onnx_part("model", model)[1])


def onnx_part(name, parts):
    """A message on the wire, as a field of that name."""
    return name, message([[ONNX_FIELDS[field], *((VARINT, value % 2**64) if isinstance(value, int) else
                                                  (BYTES, value if isinstance(value, bytes) else value.encode()))]
                          for field, value in parts])


def test_windows_that_cannot_be_are_named_with_their_node():
    with Folder() as folder:
        weir("inspect", col2im(folder))
        weir("inspect", col2im(folder, pads=[0] * 4, strides=[1, 1], dilations=[1, 1]))
        large = 2**62
        for name, sizes in (("image_shape", ([], [0, 5], [5, -5], [large, 5], [2**63 - 1, 5], [5] * 4)),
                            ("block_shape", ([], [0, 2], [2, -2], [large, 2], [6, 6], [2] * 4)),
                            ("pads", ([], [-1, 0, 0, 0], [0, 0, 0, large], [0] * 6)),
                            ("strides", ([], [0, 1], [1, -1], [large, 1], [1] * 3)),
                            ("dilations", ([], [0, 1], [1, -1], [large, 1], [5, 1], [1] * 3))):
            for numbers in sizes:
                refused("inspect", col2im(folder, **{name: numbers}), words=["fold.onnx", "node 'fold' (Col2Im)"])


def test_a_label_out_of_range_is_named_with_its_sample():
    with Folder() as folder:
        spec = local_data(folder, labels=idx((10,), bytes([0, 1, 2, 3, 4, 5, 6, 77, 8, 9])))
        train(folder, spec, words=["labels: sample 7", "a label that is no class", "10 classes"])


def test_a_bad_dataset_is_named_with_its_cause():
    with Folder() as folder:
        spec = local_data(folder)
        os.unlink(folder.file("images"))
        train(folder, spec, words=["images", "No such file"])
        train(folder, local_data(folder, images=idx((10, 28, 28), bytes(783))), words=["images", "cut short"])
        train(folder, local_data(folder, labels=idx((9,), bytes(9))), words=["10 images", "9 labels"])
        text = open(spec).read().replace("labels: labels", "labels: labels.gz")
        folder.file("labels.gz", idx((10,), bytes(10)))
        train(folder, folder.file("gz.yaml", text), words=["labels.gz", "not gzip"])
        folder.file("labels.gz", gzip.compress(idx((10,), bytes(10)))[:-5])
        train(folder, folder.file("gz.yaml", text), words=["labels.gz", "cut short"])


def png(value, side=28):
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    rows = b"".join(b"\0" + bytes([value]) * side for _ in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_an_image_that_cannot_be_read_ends_its_run_with_its_name():
    with Folder() as folder:
        for part in ("train", "eval"):
            for label in range(2):
                os.makedirs(f"{folder.path}/{part}/{label}")
                for i in range(5):
                    folder.file(f"{part}/{label}/{i}.png", png(20 * i + label))
        model = folder.model("mlp", "--hidden", "8")
        spec = folder.file("s.yaml", f"""name: images
model: {{onnx: {model}}}
data:
  root: {folder.path}
  train: {{format: images, folder: train}}
  eval: {{format: images, folder: eval}}
  shuffle: false
train: {{steps: 4, batch: 5, microbatches: 1, optimizer: {{lr: 0.1}}}}
""")
        weir("train", spec, "--out", folder.file("out"))
        folder.file("train/1/4.png", png(84)[:-30])
        train(folder, spec, status=1, words=["failed: ", "/train/1/4.png: is a PNG that was cut short"])
        folder.file("train/1/4.png", png(84))
        folder.file("eval/0/3.png", png(60, side=27))
        train(folder, spec, words=["0/3.png: is [1,27,27] after the transforms"], status=1)
        os.rename(f"{folder.path}/eval/0", f"{folder.path}/eval/zero")
        train(folder, spec, words=["data.eval: ", "/eval: its class 0 is 1, that of ", "/train is 0"])


def test_a_bad_spec_is_named_with_its_line():
    with Folder() as folder:
        model = folder.model("mlp")
        spec = folder.spec(model, train=TRAIN.replace("batch", "bacth"))
        refused("train", spec, words=["spec.yaml:9", "bacth", "did you mean 'batch'"])
        refused("train", folder.spec(model, train=TRAIN.replace("16", "-16")), words=["spec.yaml:9", "train.batch"])
        refused("train", folder.spec(model, train=TRAIN.replace("microbatches: 2", "microbatches: 3")),
                words=["train.microbatches", "3", "16"])
        refused("train", folder.spec(model, train=TRAIN.replace("{lr: 0.1}", "{name: adamantium, lr: 0.1}")),
                words=["optimizer", "adamantium", "sgd"])
        refused("train", folder.spec(model, train=TRAIN + "  mode: chaos\n"), words=["mode", "chaos", "sync"])
        refused("train", folder.spec(model, train=TRAIN + "  schedule: {name: step}\n"), words=["step_size"])
        refused("train", folder.file("absent.yaml"), words=["absent.yaml"])


def test_wrong_usage_is_one_line_and_status_2():
    refused("trian", "x", words=["trian", "train"])
    refused("train", words=["SPEC"])
    refused("train", "x", "--wrkers", "2", words=["wrkers", "workers"])
    refused("train", "x", "--workers", "many", words=["many"])
    refused("model", "lennet", "-o", "/tmp/x.onnx", words=["lennet", "lenet"])


def test_an_address_that_is_none_is_refused():
    for address in ("nowhere", "::1:7070", "127.0.0.1:99999", "127.0.0.1:", "127.0.0.1:7070,b"):
        refused("runs", "--coordinator", address, words=[address.rpartition(",")[2], "is not an address: expected HOST:PORT, [IPV6]:PORT"])


def test_a_coordinator_that_does_not_answer_is_status_3():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % reserved.getsockname()[1]
        for command in (["runs"], ["workers"], ["status", "x"], ["watch", "x"], ["cancel", "x"]):
            refused(*command, "--coordinator", address, status=3, words=[address])
        with Folder() as folder:
            spec = folder.spec(folder.model("mlp"), train=TRAIN)
            refused("submit", spec, "--coordinator", address, status=3, words=[address])


def test_an_unknown_run_is_named():
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        for command in (["status", "nobody"], ["watch", "nobody"], ["cancel", "nobody"],
                        ["export", "nobody", "-o", folder.file("x.onnx")]):
            refused(*command, "--coordinator", cluster.address, words=["nobody"])


def test_an_out_folder_that_holds_a_run_is_not_overwritten():
    with Folder() as folder:
        spec = local_data(folder)
        weir("train", spec, "--out", folder.file("out"))
        before = open(folder.file("out/model.safetensors"), "rb").read()
        refused("train", spec, "--out", folder.file("out"), words=["--force"])
        assert open(folder.file("out/model.safetensors"), "rb").read() == before
        weir("train", spec, "--out", folder.file("out"), "--force")


def test_an_out_folder_loses_nothing_that_no_run_left():
    with Folder() as folder:
        spec = local_data(folder)
        mine = {"logs/mine": "my log", "store/mine": "my things", "spec.yaml": open(spec).read(), "run": "#!/bin/sh"}
        for name, text in mine.items():
            os.makedirs(os.path.dirname(folder.file(name)), exist_ok=True)
            folder.file(name, text)
        for force in ([], ["--force"]):
            refused("train", folder.file("spec.yaml"), "--out", folder.path, *force, words=["no run left it", "--out"])
        for name, text in mine.items():
            assert open(folder.file(name)).read() == text, name


def test_a_run_that_would_remove_its_own_spec_or_model_is_refused():
    with Folder() as folder:
        out = folder.file("out")
        weir("train", local_data(folder), "--out", out)
        kept = folder.file("out/spec.yaml")
        refused("train", kept, "--out", out, "--force", words=["out/spec.yaml", "would be removed"])
        assert os.path.exists(kept)
        again = folder.file("again.yaml", open(kept).read().replace("mlp.onnx", "out/model.onnx"))
        refused("train", again, "--out", out, "--force", words=["out/model.onnx", "would be removed"])
        assert os.path.exists(folder.file("out/model.onnx"))


def test_data_that_cannot_be_opened_ends_the_run():
    with Folder() as folder:
        spec = open(local_data(folder)).read()
        os.symlink("round", folder.file("round"))
        os.makedirs(folder.file("classes/a"))
        os.symlink("nothing", folder.file("classes/a/x.png"))
        for wrong, words in ((spec.replace("images: images", "images: round"), ["data.train", "round"]),
                             (spec.replace("images: images", "images: labels/x"), ["data.train", "labels/x"]),
                             (spec.replace(f"root: {folder.path}", f"root: {folder.path}/images"),
                              ["data.root", "is not a folder"]),
                             (spec.replace("format: idx, images: images, labels: labels",
                                           "format: images, folder: classes"), ["a/x.png", "No such file"])):
            train(folder, folder.file("wrong.yaml", wrong), words=["failed: ", *words])


def test_names_and_options_that_tables_do_not_have_are_refused_with_file_and_line_before_anything_is_sent():
    with Folder() as folder:
        spec = open(local_data(folder)).read()
        for wrong, misspelt, key, words in (
                (spec.replace("lr: 0.1", "lr: 0.1, betas: [0.9, 0.9]"), "betas", "train.optimizer.betas",
                 "is not an option of 'sgd'"),
                (spec.replace("lr: 0.1", "lr: 0.1, name: sdg"), "sdg", "train.optimizer.name", "known: sgd, adam"),
                (spec.replace("train:\n", "train:\n  schedule: {name: cosin}\n"), "cosin", "train.schedule.name",
                 "known: constant"),
                (spec.replace("train:\n", "train:\n  mode: asink\n"), "asink", "train.mode", "known: sync"),
                (spec.replace("data:\n", "data:\n  split: [0.5, 0.5]\n") + "eval: {metrics: [acuracy]}\n", "acuracy",
                 "eval.metrics", "did you mean 'accuracy'")):
            path = folder.file("wrong.yaml", wrong)
            line = 1 + next(number for number, text in enumerate(wrong.splitlines()) if misspelt in text)
            said = train(folder, path, words=[words]).strip()
            assert said.startswith(f"weir: {path}:{line}: {key}: "), (said, line)
            assert weir("submit", path, "--coordinator", "127.0.0.1:1", status=2).stderr.strip() == said


def test_what_a_spec_says_of_its_model_is_refused_with_file_and_line():
    with Folder() as folder:
        spec = open(local_data(folder)).read()
        onnx = f"onnx: {folder.file('mlp.onnx')}"
        lr = "optimizer: {lr: 0.1"
        for wrong, mistaken, key, words in (
                (spec.replace(onnx, f"{onnx}, frozen: ['fc9.*']"), "fc9", "model.frozen", "matches no initializer"),
                (spec.replace(onnx, f"{onnx}, frozen_rows: {{fc9.weight: [0]}}"), "fc9", "model.frozen_rows",
                 "has no initializer 'fc9.weight'"),
                (spec.replace(lr, f"{lr}, groups: [{{params: ['*.bias'], lr: 0.2}},\n    {{params: ['fc9.*'], lr: 0.3}}]"),
                 "fc9", "train.optimizer.groups[1].params", "'fc9.*' matches no tensor"),
                (spec.replace("data:\n", "data:\n  transforms: [{cutmix: {alpha: 1}}]\n").replace("microbatches: 2",
                                                                                              "microbatches: 10"),
                 "cutmix", "data.transforms.cutmix", "which has only one")):
            path = folder.file("wrong.yaml", wrong)
            line = 1 + next(number for number, text in enumerate(wrong.splitlines()) if mistaken in text)
            said = train(folder, path, words=[words]).strip()
            assert said.startswith(f"weir: {path}:{line}: {key}: "), (said, line)
            for command in (("submit", path, "--coordinator", "127.0.0.1:1"), ("inspect", path)):
                assert weir(*command, status=2).stderr.strip() == said, command


def test_a_path_in_place_of_a_run_is_refused_before_a_coordinator_is_asked():
    with Folder() as folder:
        spec = local_data(folder)
        for what in (folder.file("nothing"), spec):
            refused("eval", what, words=[what, "neither a folder"])
        refused("export", folder.path, "-o", folder.file("x.onnx"), words=[folder.path, "--store"])
        refused("status", "NAME", words=["'NAME'", "no run's id"])


def test_weir_train_does_not_wait_for_workers_when_all_that_there_are_have_refused():
    with Folder() as folder:
        wide = folder.model("lenet", "--channels", "80,80")
        text = open(local_data(folder)).read().replace(folder.file("mlp.onnx"), wide)
        spec = folder.file("big.yaml", text.replace("batch: 10", "batch: 1048576").replace("microbatches: 2", "microbatches: 1"))
        for workers in (1, 2):
            said = train(folder, spec, "--workers", workers, words=["worker-", "refused", "MiB"])
            assert "would fit" in said or "not even" in said, said


def throw_garbage(address):
    host, port = address.rsplit(":", 1)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for payload in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), preface + os.urandom(4096),
                    preface + b"\0\0\0\4\0\0\0\0\0" + b"\xff" * 9):
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as peer:
            try:
                peer.sendall(payload)
            except OSError:
                pass  # it hung up: its right


def test_garbage_bytes_on_every_port_leave_a_run_undisturbed():
    with Folder() as folder, Cluster(folder, servers=1, workers=1) as cluster:
        spec = local_data(folder)
        metrics = folder.file("m.jsonl")
        for address in (cluster.address, cluster.servers[0][1]):
            throw_garbage(address)
        weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
        assert done_event(metrics)["steps"] == 2
        for process in cluster.processes:
            assert process.child.poll() is None, process.output()[-2000:]


def test_a_run_that_cannot_start_says_what_it_waits_for():
    with Folder() as folder, Cluster(folder, servers=1, workers=0) as cluster:
        run = weir("submit", local_data(folder), "--coordinator", cluster.address).stdout.strip()
        status = json.loads(weir("status", run, "--json", "--coordinator", cluster.address).stdout)
        assert status["state"] == "queued" and "worker" in status["message"], status
        cluster.add_worker()
        wait_for(lambda: json.loads(weir("status", run, "--json", "--coordinator",
                                         cluster.address).stdout)["state"] == "done", "the run's end")


def test_a_run_that_diverges_fails_and_says_where():
    with Folder() as folder:
        spec = folder.spec(folder.model("mlp"), train=TRAIN.replace("0.1", "1e30").replace("steps: 2", "steps: 50"))
        done = weir("train", spec, "--workers", 2, "--threads", 1, "--out", folder.file("out"), status=1)
        assert "not finite" in done.stderr and "step" in done.stderr, done.stderr


def test_a_worker_that_cannot_work_here_says_so():
    for option, value in (("--device", "gpu"), ("--data-root", "/does/not/exist"), ("--threads", "0")):
        done = subprocess.run([program("weir-worker"), option, value], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and option in done.stderr, done


def test_a_worker_must_be_told_where_data_lies():
    environment = {key: value for key, value in os.environ.items() if key != "WEIR_DATA_ROOT"}
    for value in (None, ""):
        told = environment if value is None else {**environment, "WEIR_DATA_ROOT": value}
        done = subprocess.run([program("weir-worker"), "--coordinator", "127.0.0.1:1"], capture_output=True, text=True,
                              timeout=PATIENCE, env=told)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
        assert "--data-root DIR is missing" in done.stderr and "'--data-root /' allows" in done.stderr, done.stderr


def test_a_worker_reads_no_data_outside_its_root_whatever_a_spec_says():
    with Folder() as folder, Cluster(folder, workers=0) as cluster:
        inside, outside = folder.file("inside"), folder.file("outside")
        os.mkdir(inside)
        os.mkdir(outside)
        folder.file("outside/key.pem", "-----BEGIN KEY-----\nc2VjcmV0LWtleQ==\n")
        folder.file("inside/key.csv", "-----BEGIN KEY-----\nc2VjcmV0LWtleQ==\n")
        os.symlink("../outside/key.pem", folder.file("inside/link"))
        worker = cluster.add_worker(options=["--data-root", inside])
        model = folder.model("mlp", "--input", "1", "--classes", "2", "--hidden", "2")
        for root, file, why in ((outside, "key.pem", "lies outside"), (inside, "key.csv", "none of the 1 fields"),
                                (inside, "../outside/key.pem", "names no file below"), (inside, "link", "lies outside"),
                                ("/", "proc/self/environ", "lies outside")):
            spec = folder.file("leak.yaml", f"""name: leak
model: {{onnx: {model}, loss: cross_entropy}}
data:
  root: {root}
  train: {{format: csv, file: "{file}", columns: {{x: a, labels: b}}}}
train: {{steps: 1, batch: 2, microbatches: 1, optimizer: {{lr: 1}}}}
""")
            before = len(worker.output())
            done = weir("submit", spec, "--follow", "--coordinator", cluster.address, status=2)
            said = done.stdout + done.stderr + worker.output()[before:]
            assert why in said and "BEGIN KEY" not in said and "c2VjcmV0" not in said, said


def test_a_worker_refuses_a_data_root_around_its_certificates():
    with Folder() as folder:
        weir("certs", "init", folder.file("ca"))
        for root in ("/", folder.path, folder.file("ca/worker")):
            done = subprocess.run([program("weir-worker"), "--coordinator", "127.0.0.1:1", "--data-root", root, "--tls",
                                   folder.file("ca/worker")], capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
            assert f"--data-root {root} and the folder of certificates" in done.stderr, done.stderr


def test_links_of_a_data_folder_are_followed_by_a_private_cluster_and_by_workers_that_are_told_so():
    """As where a folder's files are links to where they were downloaded."""
    with Folder() as folder:
        spec = open(local_data(folder)).read()
        linked = folder.file("linked")
        os.mkdir(linked)
        for name in ("images", "labels"):
            os.symlink(folder.file(name), os.path.join(linked, name))
        spec = folder.file("linked.yaml", spec.replace(f"root: {folder.path}", f"root: {linked}"))
        weir("train", spec, "--threads", 1, "--out", folder.file("trained"))
        with Cluster(folder, workers=0) as cluster:
            command = ("submit", spec, "--follow", "--coordinator", cluster.address)
            refusing = cluster.add_worker(options=("--data-root", linked))
            assert "--follow-links" in weir(*command, status=2).stderr
            refusing.__exit__()
            cluster.add_worker(options=("--data-root", linked, "--follow-links"))
            weir(*command)


def test_a_variable_that_is_none_of_its_words_is_refused():
    with Folder() as folder:
        for variable, words in (("WEIR_LOG", "debug, info, warn, error"), ("WEIR_LOG_FORMAT", "text, json"), ("WEIR_SHM", "on, off"),
                                ("WEIR_INSECURE", "1, 0"), ("WEIR_SOCKETS", "1, 0")):
            for command in (("weir", "runs"), ("weir-server", "--listen", "127.0.0.1:0"), ("weir-worker", "--data-root", folder.path)):
                done = subprocess.run([program(command[0]), *command[1:]], capture_output=True, text=True, timeout=PATIENCE,
                                      env={**os.environ, variable: "loud"})
                assert done.returncode == 2, (variable, command, done)
                assert done.stderr.startswith(f"{command[0]}: {variable} is {words} or nothing, not 'loud'"), done.stderr


def test_output_that_cannot_be_written_is_an_error():
    with Folder() as folder, open("/dev/full", "w", encoding="utf-8") as full:
        model = folder.model("mlp", "--hidden", "8")
        for name, *words in (("weir", "version"), ("weir", "help"), ("weir", "inspect", model), ("weir", "inspect", model, "--json"),
                             ("weir", "train", local_data(folder), "--threads", "1", "--out", folder.file("out")),
                             ("weir-server", "--help"), ("weir-server", "--version"), ("weir-worker", "--man")):
            command = [program(name), *words]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
            assert done.returncode == 2 and "standard output" in done.stderr.splitlines()[-1], (command, done)
        assert os.path.exists(folder.file("out/model.onnx")), "the training itself is not lost"


def test_no_file_or_socket_takes_the_number_of_a_standard_file_that_is_closed():
    """Else the log's lines go into it."""
    with Folder() as folder:
        for command in ((program("weir-server"), "--listen", f"unix:{folder.path}/server"),
                        (program("weir-worker"), "--coordinator", f"unix:{folder.path}/nobody", "--data-root", folder.path),
                        (program("weir"), "ui", "--coordinator", f"unix:{folder.path}/server")):
            process = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command])
            try:
                proc = f"/proc/{process.pid}"
                wait_for(lambda: os.readlink(f"{proc}/exe") == os.path.realpath(command[0]) and len(os.listdir(f"{proc}/fd")) > 5,
                         "the program to have opened files of its own")
                assert [os.readlink(f"{proc}/fd/{fd}") for fd in range(3)] == 3 * ["/dev/null"], command
            finally:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main(globals())
