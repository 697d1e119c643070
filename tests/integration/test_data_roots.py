"""Data roots of tenants: what a tenant's specs name lies below its own folder, whatever they say and whoever has put links there."""
import contextlib
import json
import os
import re
import shutil

from certificates import Authority
from gate import Gate
from harness import Cluster, Folder, main, wait_for, weir
from test_foreign import FREE, foreign, joined
from test_sweep import SWEEP
from test_tenants import Tenants
from test_tls import undisturbed, write_spec

SECRET = "c2VjcmV0LWRhdGE="


class Roots:
    """A data root with a folder of data for vision, and one for each other tenant below tenants/: nlp's has links out of it."""

    def __init__(self, folder):
        self.folder, self.spec = folder, write_spec(folder)
        self.data = re.search("root: (.*)", open(self.spec).read()).group(1)
        self.path = folder.file("root")
        for name in ("vision", "tenants/nlp"):
            shutil.copytree(self.data, os.path.join(self.path, name))
        for name in ("key.csv", "vision/key.csv"):
            folder.file("root/" + name, f"x,y\n{SECRET},0\n{SECRET},1\n")
        for name, target in {"away": "../../vision", "absolute": self.of("vision"), "key.csv": "../../vision/key.csv",
                             "images-out": "../../vision/train-images-idx3"}.items():
            os.symlink(target, self.of("tenants/nlp/" + name))

    def of(self, name):
        return os.path.join(self.path, name)

    def write(self, root, **changes):
        """The spec, of a root and with the values of some lines changed."""
        text = open(self.spec).read().replace(f"root: {self.data}", f"root: {root}")
        for key, value in changes.items():
            text, n = re.subn(f"(?m)^  {key}: .*$", f"  {key}: {value}", text)
            assert n == 1, (key, text)
        return self.folder.file("rooted.yaml", text)


def confined(folder, authority, quotas, **options):
    options["options"] = ("--tls", authority.folder("coordinator"), *(word for quota in quotas for word in ("--quota", quota)))
    cluster = Cluster(folder, servers=0, workers=0, **options)
    cluster.server_options = ("--tls", authority.folder("server"))
    cluster.add_server()
    return cluster


def test_a_tenants_specs_read_nothing_outside_its_own_data_root():
    with Folder() as folder:
        authority, roots = Authority(folder), Roots(folder)
        with confined(folder, authority, (f"vision:data_root={roots.of('vision')}", "*:data_root=tenants/*", "default:runs=9")) as cluster:
            there = Tenants(folder, cluster, authority)
            worker = cluster.add_worker(options=("--data-root", roots.path, "--follow-links", "--tls", authority.folder("worker")))
            cluster.all_join()

            def trains(tenant, root, *words):
                run = there.ask(tenant, "submitter", *(words or ("submit", roots.write(root)))).stdout.strip()
                status = wait_for(lambda: ends(tenant, run), "the run's end")
                assert (status["state"], status["weights_sha256"]) == ("done", undisturbed()), status
                return run

            def ends(tenant, run):
                status = json.loads(there.ask(tenant, "viewer", "status", run, "--json").stdout)
                return status if status["state"] in ("done", "failed") else None

            def refused(why, root, **changes):
                before = len(worker.output())
                done = there.ask("nlp", "submitter", "submit", roots.write(root, **changes), "--follow", status=2)
                said = done.stdout + done.stderr + worker.output()[before:]
                assert why in said and SECRET not in said, said

            outside, idx = "the data_root of the run's tenant", "{{format: idx, images: {}, labels: {}}}".format
            theirs = trains("vision", ".")
            refused(outside, roots.of("vision"))  # the very run that is over, and that the worker still has in memory
            trains("vision", roots.of("vision"))
            for root in ("../../vision", "away/../away", roots.path, roots.of("tenants/nlp/../../vision"), "/", "away", "absolute"):
                refused(outside, root)
            refused(outside, ".", train=idx("images-out", "train-labels-idx1"))
            refused(outside, ".", eval=idx("away/t10k-images-idx3", "t10k-labels-idx1"))
            refused("names no file below", ".", eval=idx("../../vision/t10k-images-idx3", "t10k-labels-idx1"))
            refused(outside, ".", train="{format: csv, file: key.csv, columns: {images: x, labels: y}}")
            refused(outside, ".", train="{format: images, folder: away}")
            refused("none of the", roots.of("tenants/nlp"), train="{format: csv, file: train-labels-idx1, columns: {images: x, labels: y}}")
            own = trains("nlp", ".")
            trains("nlp", roots.of("tenants/nlp"))
            done = there.ask("nlp", "submitter", "eval", own, "--data", roots.write(roots.of("vision")), status=2)
            assert outside in done.stdout + done.stderr, done
            trains("default", "vision")  # it has a row of its own, without a folder: all of --data-root is its

            roots.write(roots.of("vision"))
            sweep = folder.file("sweep.yaml", SWEEP.format(spec="rooted.yaml", schedule="{name: none}", trials=1, metric="accuracy"))
            there.ask("nlp", "submitter", "sweep", sweep, "--follow", status=1)
            assert not any(row["state"] == "done" for row in json.loads(there.ask("nlp", "viewer", "runs", "--json").stdout) if row.get("sweep"))
            fork = there.ask("default", "operator", "fork", theirs, "train.steps=24").stdout.strip()
            assert wait_for(lambda: ends("vision", fork), "the fork's end")["state"] == "done"  # '.' is its tenant's, whoever forks it


class Changing:
    """A run of vision's data that stands at a step; its tenant's data root changes."""

    def __init__(self, folder, roots, cluster):
        self.folder, self.roots, self.cluster = folder, roots, cluster
        cluster.add_worker(options=("--data-root", roots.path))
        cluster.all_join()
        cluster.gate.stop_at(1)
        self.run = weir("submit", roots.write(roots.of("vision")), "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: self.status("step") >= 1, "the run to stand")

    def status(self, of="message"):
        return self.cluster.json("status", self.run)[of]

    def becomes(self, path):
        """The tenant's data root does."""
        coordinator = self.cluster.coordinator
        before = coordinator.output().count(" new_quotas ")
        os.rename(self.folder.file("new", f"default:data_root={path}\n"), self.folder.file("quotas"))
        wait_for(lambda: coordinator.output().count(" new_quotas ") > before, "the quotas")

    def is_refused(self):
        wait_for(lambda: "tenants/nlp, the data_root of the run's tenant" in self.status(), "a refusal")

    def finishes(self):
        """A worker that has refused a run is not asked again."""
        self.becomes("vision")
        self.cluster.gate.open()
        self.cluster.add_worker(options=("--data-root", self.roots.path))
        wait_for(lambda: self.status("state") == "done", "the run's end")
        assert self.status("weights_sha256") == undisturbed()

    def has_successor(self):
        self.cluster.coordinator.__exit__()
        self.cluster.start_coordinator()


@contextlib.contextmanager
def changing():
    with Folder() as folder:
        roots = Roots(folder)
        quotas = folder.file("quotas", "default:data_root=vision\n")
        with Cluster(folder, workers=0, gate=Gate(folder), options=("--quotas", quotas)) as cluster:
            yield Changing(folder, roots, cluster)


def test_a_data_root_that_changes_holds_for_a_run_that_is_resumed():
    with changing() as run:
        weir("pause", run.run, "--coordinator", run.cluster.address)
        run.cluster.gate.crawl(lambda: run.status("state") == "paused", "the pause", steps=1)
        run.becomes("tenants/nlp")
        weir("resume", run.run, "--coordinator", run.cluster.address)
        run.is_refused()  # by a worker that has the run's data in memory
        run.has_successor()
        run.is_refused()
        run.finishes()


def test_a_data_root_that_changes_holds_for_a_run_that_a_successor_finds_under_way():
    with changing() as run:
        run.becomes("tenants/nlp")
        assert run.status("state") == "running" and run.status("workers") == 1
        run.has_successor()
        run.is_refused()
        run.finishes()


def test_a_worker_that_does_not_know_of_data_roots_is_given_no_run_of_a_tenant_with_one():
    with Folder() as folder, Cluster(folder, workers=0, options=("--quota", "default:data_root=.")) as cluster, foreign(cluster.address) as other:
        joined(cluster, 1)
        run = weir("submit", write_spec(folder), *FREE, "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: "keeps no run's files below its tenant's data_root" in cluster.json("status", run)["message"], "the reason")
        cluster.add_worker()
        wait_for(lambda: cluster.json("status", run)["state"] == "done", "the run's end")
        assert "trained" not in other.output(), other.output()


if __name__ == "__main__":
    main(globals())
