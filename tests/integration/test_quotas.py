"""Quotas of tenants: each is refused, or waited for, with its name, its limit, what is used and what to do."""
import json
import os
import re
import subprocess

from certificates import Authority
from harness import PATIENCE, PEER_PYTHON, Cluster, Folder, Process, Skip, main, program, wait_for, weir
from test_sweep import write_sweep
from test_tenants import Caller, Tenants
from test_tickets import text_field
from test_tls import undisturbed, write_spec

HERE = os.path.dirname(os.path.abspath(__file__))
MOST = 32  # downloads of a tenant without a quota of them
QUOTAS = ("one:runs=1", "small:memory=1KB", "poor:store=10", "mute:uploads=0", "slow:executors=1", "*:runs=2")


def limited(folder, authority):
    options = ["--tls", authority.folder("coordinator")]
    for quota in QUOTAS:
        options += ["--quota", quota]
    cluster = Cluster(folder, servers=0, workers=0, options=options)
    cluster.server_options = ("--tls", authority.folder("server"))
    return cluster


def test_each_quota_is_refused_with_its_name_its_limit_and_what_to_do():
    with Folder() as folder:
        authority = Authority(folder)
        with limited(folder, authority) as cluster:
            there, spec = Tenants(folder, cluster, authority), write_spec(folder)

            def submit(tenant, *words, status=0):
                return there.ask(tenant, "submitter", *(words or ("submit", spec)), status=status)

            def refused(text, tenant, *words):
                error = submit(tenant, *words, status=1).stderr
                assert error.count("\n") == 1 and re.search(f"the quota of the tenant '{tenant}' is {text}", error), error

            first = submit("one").stdout.strip()
            refused(r"runs=1: 1 used, and this takes 1: wait until one is over, or end one with 'weir cancel'", "one")
            refused(r"memory=1000 bytes: 0 bytes used, and this takes \d+ bytes: wait until a run is over", "small")
            refused(r"store=10 bytes: 0 bytes used, and this takes \d+ bytes: delete runs that are over with 'weir gc'", "poor")
            refused(r"uploads=0: 0 used, and this takes 1: submit again when one of them has come", "mute")
            for _ in range(2):
                submit("others")
            refused("runs=2: 2 used", "others")
            submit("one", "cancel", first)
            submit("one")
            refused("runs=1: 1 used", "one", "resume", first)
            with Caller(there, "client", "one", "submitter") as caller:
                status, details, _ = caller.ask("Training/Resume", text_field(1, first))
                assert status == "RESOURCE_EXHAUSTED" and "runs=1" in details, (status, details)
            assert len(json.loads(there.ask("default", "operator", "runs", "--json").stdout)) == 4


def test_a_tenants_runs_have_no_more_executors_than_its_quota_and_the_same_hash():
    with Folder() as folder:
        authority = Authority(folder)
        with limited(folder, authority) as cluster:
            there, spec = Tenants(folder, cluster, authority), write_spec(folder)
            cluster.add_server()

            def rows():
                return json.loads(there.ask("slow", "viewer", "runs", "--json").stdout)

            def are_over():
                executors = sum(row.get("executors", 0) for row in rows())
                assert executors <= 1, rows()
                return all(row["state"] == "done" for row in rows())
            for _ in range(2):
                there.ask("slow", "submitter", "submit", spec)
            cluster.add_worker(threads=2, options=("--tls", authority.folder("worker")))
            wait_for(are_over, "the end of both")
            assert [row["weights_sha256"] for row in rows()] == 2 * [undisturbed()]


def test_a_sweeps_trials_begin_as_its_tenants_quota_allows():
    with Folder() as folder, Cluster(folder, options=("--quota", "default:runs=1")) as cluster:
        path = write_sweep(folder, schedule="{name: none}", trials=3)
        sweep = weir("sweep", path, "concurrency=3", "--coordinator", cluster.address).stdout.strip()

        def info():
            return json.loads(weir("sweep", "status", sweep, "--json", "--coordinator", cluster.address).stdout)

        wait_for(lambda: info().get("end"), "the end of the sweep")
        live = most = ends = 0
        for event in re.findall(r" (run_submitted) run=| to=(done|failed|cancelled|stopped) ", cluster.coordinator.output()):
            live += 1 if event[0] else -1
            ends += not event[0]
            most = max(most, live)
        assert (most, ends) == (1, 3), cluster.coordinator.output()


def test_quotas_of_a_file_are_gone_by_once_it_has_changed():
    with Folder() as folder:
        quotas, spec = folder.file("quotas", "default:runs=1 # to begin with\n"), write_spec(folder)
        with Cluster(folder, options=("--quotas", quotas)) as cluster:
            where = ("--coordinator", cluster.address)

            def change(text, says):
                before = cluster.coordinator.output().count(says)
                os.rename(folder.file("new", text), quotas)
                wait_for(lambda: cluster.coordinator.output().count(says) > before, says)

            def refused(*words):
                error = weir(*words, *where, status=1).stderr
                assert error.count("\n") == 1 and "the quota of the tenant 'default' is runs=0: 0 used, and this takes 1" in error, error
            run = weir("submit", spec, *where).stdout.strip()
            wait_for(lambda: cluster.json("status", run)["state"] == "done", "the end of the run")
            change("# nobody\n*:runs=0\n", " new_quotas ")
            refused("submit", spec)
            refused("fork", run, "train.steps=24")
            change("*:runs=3\n*:runs=4\n", f"{quotas}:2: the tenant '*' has quotas already")
            refused("submit", spec)
            change("*:store=1\n", " new_quotas ")
            error = weir("fork", run, "train.steps=24", *where, status=1).stderr
            used, more = map(int, re.search(r"store=1 bytes: (\d+) bytes used, and this takes (\d+) bytes", error).groups())
            model = os.path.getsize(folder.file("mlp.onnx"))
            assert used > 2 * model and more > model, error  # the model and its run's checkpoints; the fork's first one
            change("", " new_quotas ")
            weir("submit", spec, *where)
            weir("fork", run, "train.steps=24", *where)


def slow_reader(there, tenant, run, count):
    """Asks for the run's weights so often at once, and reads nothing."""
    if not os.path.exists(PEER_PYTHON):
        raise Skip("the peers' environment is missing")
    certificate = there.certificate("client", tenant, "viewer")
    files = [os.path.join(certificate, name) for name in ("ca.pem", "cert.pem", "key.pem")]
    return Process(PEER_PYTHON, os.path.join(HERE, "peer_slow_reader.py"), there.cluster.address, *files, run, count)


def test_a_tenant_that_holds_all_its_downloads_and_verifications_keeps_nobody_else_from_theirs():
    with Folder() as folder:
        authority = Authority(folder)
        quotas = ("--quota", "few:downloads=3,verifications=0")
        with Cluster(folder, servers=0, workers=0, options=("--tls", authority.folder("coordinator"), *quotas)) as cluster:
            there, runs = Tenants(folder, cluster, authority), {}
            cluster.server_options = ("--tls", authority.folder("server"))
            cluster.add_server()
            cluster.add_worker(options=("--tls", authority.folder("worker")))
            cluster.all_join()
            text = open(write_spec(folder)).read()
            model = folder.model("mlp", "--hidden", 1024)  # 3 MB, more than lies between two processes
            spec = folder.file("wide.yaml", re.sub("onnx: [^,}]*", f"onnx: {model}", text))
            for tenant in ("few", "many", "others"):
                runs[tenant] = there.ask(tenant, "submitter", "submit", spec, "train.steps=1").stdout.strip()

            def export(tenant, **expected):
                out = folder.file(f"{tenant}.safetensors")
                return there.ask(tenant, "viewer", "export", runs[tenant], "-o", out, **expected).stderr

            def is_done(tenant):
                return json.loads(there.ask(tenant, "viewer", "status", runs[tenant], "--json").stdout)["state"] == "done"

            def refusals(reader):
                return [json.loads(line) for line in reader.output().splitlines()]
            wait_for(lambda: all(map(is_done, runs)), "the runs' ends")
            with slow_reader(there, "few", runs["few"], 4) as few, slow_reader(there, "many", runs["many"], MOST + 1) as many:
                wait_for(lambda: few.output().endswith("\n") and many.output().endswith("\n"), "the refusals")
                assert refusals(few) == [{"status": "RESOURCE_EXHAUSTED", "details": "the quota of the tenant 'few' is downloads=3: 3 used, "
                                          "and this takes 1: ask again when one of them has come, or its client has gone"}]
                assert refusals(many) == [{"status": "ABORTED", "details": f"the tenant 'many' has {MOST} downloads under way, as many as a "
                                           "tenant may have: ask again when one is over"}]
                for tenant, status in (("few", 1), ("many", 2)):
                    assert f"the tenant '{tenant}'" in export(tenant, status=status)
                export("others")
                there.ask("others", "submitter", "verify", runs["others"])
                there.ask("many", "submitter", "verify", runs["many"])
                error = there.ask("few", "submitter", "verify", runs["few"], status=1).stderr
                assert "the quota of the tenant 'few' is verifications=0: 0 used, and this takes 1: ask again when one" in error, error

            def is_served(tenant):
                try:
                    return export(tenant) == ""
                except AssertionError:
                    return False
            for tenant in ("few", "many"):
                wait_for(lambda tenant=tenant: is_served(tenant), "a download once those before are gone")


def test_what_is_no_quota_stops_the_coordinator_at_once():
    for option, quota, text in (("--quota", "vision", "is no quota"), ("--quota", "vision:runs=some", "'some' is not a number"),
                                ("--quotas", "/nowhere/quotas", "/nowhere/quotas"), ("--quotas", "/dev/null", "not a text file")):
        error = weir_server(option, quota)
        assert error.count("\n") == 1 and f"{option}: " in error and text in error, error
    assert "--quota is for a coordinator" in weir_server("--role=parameters", "--quota", "vision:runs=1")
    assert "--quotas is for a coordinator" in weir_server("--role=parameters", "--quotas", "quotas")
    assert "exclude each other" in weir_server("--quota", "vision:runs=1", "--quotas", "quotas")


def weir_server(*words):
    done = subprocess.run([program("weir-server"), *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2, done
    return done.stderr


if __name__ == "__main__":
    main(globals())
