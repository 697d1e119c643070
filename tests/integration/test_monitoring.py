#!/usr/bin/env python3
"""--http: each program's /metrics, as Prometheus and promtool read it, and what knocks at its port."""
import json
import os
import re
import socket
import ssl
import subprocess
import urllib.parse
import urllib.request

import scraping
from certificates import Authority, openssl
from harness import (PATIENCE, PEER_PYTHON, ROOT, Cluster, Folder, Process, Skip, done_event, main, own_address, program, start_announced,
                     wait_for, weir)
from test_tls import DATA_ROOT, undisturbed, write_spec

GRAFANA = os.path.join(ROOT, "docker", "grafana", "weir.json")
HTTP = ("--http", "127.0.0.1:0")
STEPS, MICROBATCHES = 12, 4  # of write_spec


def monitored(folder, **options):
    """A coordinator, two servers and two workers, each with --http."""
    cluster = Cluster(folder, servers=0, workers=0, options=(*HTTP, *options.pop("coordinator", ())), **options)
    cluster.server_options = HTTP
    for _ in range(2):
        cluster.add_server()
    for _ in range(2):
        cluster.add_worker(options=HTTP)
    return cluster


def addresses(cluster):
    """{role: [address]}."""
    return {"coordinator": [scraping.http_address(cluster.coordinator)],
            "server": [scraping.http_address(server) for server, _ in cluster.servers],
            "worker": [scraping.http_address(worker) for worker in cluster.workers]}


def train(folder, cluster):
    metrics = folder.file("metrics.jsonl")
    weir("submit", write_spec(folder), "--follow", "--coordinator", cluster.address, "--metrics", metrics)
    return done_event(metrics)["weights_sha256"]


def submit(folder, cluster):
    return weir("submit", write_spec(folder), "--coordinator", cluster.address).stdout.strip()


def wait_done(cluster, run):
    return wait_for(lambda: (status := cluster.json("status", run))["state"] == "done" and status, "the run's end")


def test_each_program_tells_what_it_has_done():
    with Folder() as folder, monitored(folder, is_patient=True) as cluster:
        run = submit(folder, cluster)
        status = wait_done(cluster, run)
        where, everybody = addresses(cluster), {'role="server"': 2, 'role="worker"': 2}
        wait_for(lambda: scraping.scrape(where["coordinator"][0])["weir_coordinator_members"] == everybody, "whom it missed")
        # Workers before servers, which have by then what those sent.
        pages = {role: [scraping.ask(address)[1] for address in where[role]] for role in ("worker", "server", "coordinator")}
        for page in sum(pages.values(), []):
            scraping.assert_well_formed(page)
            assert run not in page, "names of runs are not asked for"
        of = {role: [scraping.parse(page) for page in list_] for role, list_ in pages.items()}

        def everywhere(role, name):
            return sum(scraping.total(metrics, name) for metrics in of[role])
        coordinator = of["coordinator"][0]
        assert coordinator["weir_coordinator_runs"]['state="done"'] == 1 == everywhere("coordinator", "weir_coordinator_runs")
        assert coordinator["weir_coordinator_members"] == everybody
        assert everywhere("coordinator", "weir_coordinator_executors") == 2
        assert everywhere("coordinator", "weir_coordinator_executors_wanted") == 0
        assert everywhere("coordinator", "weir_coordinator_leading") == everywhere("coordinator", "weir_coordinator_store_healthy") == 1
        assert everywhere("coordinator", "weir_coordinator_views_total") > 0 < everywhere("coordinator", "weir_coordinator_events_total")
        assert everywhere("coordinator", "weir_coordinator_checkpoints_total") == len(cluster.json("checkpoints", run))
        assert everywhere("worker", "weir_worker_microbatches_total") >= STEPS * MICROBATCHES
        assert everywhere("worker", "weir_worker_busy_seconds_total") > 0
        assert everywhere("server", "weir_server_versions_total") == STEPS * status["blocks"]
        assert everywhere("server", "weir_server_pushes_total") >= STEPS * status["blocks"]
        assert everywhere("server", "weir_server_busy_seconds_total") > 0
        assert everywhere("server", "weir_server_received_bytes_total") >= everywhere("worker", "weir_worker_sent_bytes_total") > 0
        assert everywhere("server", "weir_server_sent_bytes_total") >= everywhere("worker", "weir_worker_received_bytes_total") > 0
        shown = set().union(*(metrics for list_ in of.values() for metrics in list_))
        assert shown == {row[3] for row in scraping.table() if row[4] != "run"}, "rows that nobody tells"


def test_executors_that_runs_have_use_for_are_wanted_and_a_queue_is_counted():
    with Folder() as folder, Cluster(folder, workers=0, options=HTTP) as cluster:
        address = scraping.http_address(cluster.coordinator)
        submit(folder, cluster)

        def told():
            metrics = scraping.scrape(address)
            return (metrics["weir_coordinator_executors_wanted"][""], metrics["weir_coordinator_queue_length"][""],
                    metrics["weir_coordinator_runs"]['state="queued"'])
        wait_for(lambda: told() == (MICROBATCHES, 1, 1), "the run to want executors")


def test_no_live_run_is_named_where_that_is_not_asked_for():
    with Folder() as folder, Cluster(folder, options=HTTP) as cluster:
        run = weir("submit", write_spec(folder), "train.hold=6", "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: cluster.json("status", run)["state"] == "held", "the hold")
        page = scraping.ask(scraping.http_address(cluster.coordinator))[1]
        assert scraping.parse(page)["weir_coordinator_runs"]['state="held"'] == 1
        assert run not in page and "tenant=" not in page and "weir_run_" not in page, page


def test_live_runs_are_named_where_that_is_asked_for():
    with Folder() as folder, monitored(folder, coordinator=("--http-names",)) as cluster:
        address = scraping.http_address(cluster.coordinator)
        run = weir("submit", write_spec(folder), "train.hold=6", "--coordinator", cluster.address).stdout.strip()
        labels = f'run="{run}",tenant="default"'
        wait_for(lambda: scraping.scrape(address).get("weir_run_version", {}).get(labels) == 6, "the hold")
        assert scraping.scrape(address)["weir_run_loss"][labels] > 0
        scraping.assert_well_formed(scraping.ask(address)[1])
        weir("cancel", run, "--coordinator", cluster.address)
        wait_for(lambda: "weir_run_version" not in scraping.scrape(address), "the run not to be named any more")


def garbage(address):
    """What others may send, connection by connection."""
    yield b""
    yield b"GET /metr"
    yield b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + bytes(100000)
    yield b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield b"GET /metrics HTTP/1.1\r\nHost: weir.example\r\n\r\n"
    yield b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 1000000
    yield b"GET /" + b"a" * 1000000 + b" HTTP/1.1\r\n\r\n"
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(10000)
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500)
    yield os.urandom(5000)
    yield b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"


def throw(address):
    """Some stay open, as those who send half of a request and wait."""
    held = []
    for piece in garbage(address):
        for _ in range(20):
            connection = socket.create_connection(address)
            connection.setblocking(False)
            try:
                connection.send(piece)
            except OSError:
                pass
            held.append(connection)
    return held


def test_garbage_at_the_ports_disturbs_no_training():
    with Folder() as folder, monitored(folder) as cluster:
        every = sum(addresses(cluster).values(), [])
        held = [connection for address in every for connection in throw(address)]
        assert train(folder, cluster) == undisturbed()
        for connection in held:
            connection.close()
        for address in every:
            wait_for(lambda: scraping.ask(address)[0] == 200, "an answer among all that")
        assert all(process.child.poll() is None for process in cluster.processes)


def test_without_certificates_a_port_is_for_this_machine_alone():
    with Folder() as folder:
        store = ("--store", "file://" + folder.file("store"))
        worker = (program("weir-worker"), "--data-root", DATA_ROOT.name)
        for command, text in (
                ((program("weir-server"), *store, "--http", "0.0.0.0:0"), "--http: 0.0.0.0:0 leads beyond this machine"),
                ((*worker, "--http", "0.0.0.0:0"), "--http: 0.0.0.0:0 leads beyond this machine"),
                ((program("weir-server"), *store, "--http", "unix:/tmp/http"), "--http: 'unix:/tmp/http' is not an address"),
                ((*worker, "--http", "localhost"), "--http: 'localhost' is not an address"),
                ((program("weir-server"), *store, "--http", "127.0.0.1:99999"), "is not an address"),
                ((program("weir-server"), *store, "--http-names"), "--http-names is for a coordinator with --http"),
                ((program("weir-server"), *store, "--role=parameters", *HTTP, "--http-names"), "--http-names is for")):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 2 and text in done.stderr and done.stderr.count("\n") == 1, (command, done)


def test_a_port_that_is_taken_ends_a_program_at_its_start():
    with Folder() as folder, socket.create_server(("127.0.0.1", 0)) as taken:
        http = ("--http", f"127.0.0.1:{taken.getsockname()[1]}")
        for command in ((program("weir-server"), "--listen", own_address(), "--store", "file://" + folder.file("store")),
                        (program("weir-worker"), "--data-root", DATA_ROOT.name)):
            with Process(*command, *http) as process:
                assert process.wait() == 1 and "--http: cannot listen on 127.0.0.1:" in process.output(), process.output()


def test_with_certificates_only_their_holders_read():
    with Folder() as folder:
        authority = Authority(folder)
        own = authority.folder("coordinator")
        viewer, stranger = folder.file("viewer"), folder.file("stranger")
        weir("certs", "issue", "--ca", authority.path, "--role", "client", "--name", "prometheus", "--access", "viewer", viewer)
        weir("certs", "issue", "--ca", authority.path, "--role", "client", "--tenant", "vision", stranger)
        expired = authority.issue(folder.file("expired"), "URI:spiffe://weir/client/default/viewer/old", days=(-3, -1))
        other = Authority(folder, "other").folder("client")
        command = (program("weir-server"), "--role=coordinator", "--listen", own_address(), "--http", "0.0.0.0:0", "--tls", own,
                   "--store", "file://" + folder.file("store"))
        with start_announced(*command)[0] as server:
            address = ("127.0.0.1", scraping.http_address(server)[1])
            assert scraping.scrape(address, tls=viewer)["weir_coordinator_leading"] == {"": 1}
            assert scraping.ask(address, tls=authority.folder("worker"))[0] == 200
            assert scraping.ask(address, tls="") == (403, "a certificate of this cluster's authority is needed here\n")
            status, text = scraping.ask(address, tls=stranger)
            assert status == 403 and "clients of the tenant default" in text, text
            assert refused(address, expired) and refused(address, other)
            with scraping.connect(address) as plain:
                plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert not plain.recv(100).startswith(b"HTTP"), "plaintext is answered"
            with open(os.path.join(own, "denied.txt"), "w") as denied:
                denied.write("client/default/viewer/prometheus\n")
            wait_for(lambda: scraping.ask(address, tls=viewer)[0] == 403, "the name to be denied")


def refused(address, folder):
    """Not of the authority, as the server sees it; the client does not look at the server's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
    with context.wrap_socket(socket.create_connection(address)) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return connection.recv(100).startswith(b"HTTP/1.1 403")


def test_a_certificate_that_was_renewed_is_shown_to_the_next_who_ask():
    with Folder() as folder:
        authority = Authority(folder)
        own, client = authority.folder("coordinator"), authority.folder("client")
        command = (program("weir-server"), "--role=coordinator", "--listen", own_address(), *HTTP, "--tls", own, "--store",
                   "file://" + folder.file("store"))

        def serial(address):
            """None: of a connection that ends as the certificate is changed."""
            try:
                with scraping.connect(address, client) as connection:
                    return connection.getpeercert()["serialNumber"]
            except (ssl.SSLEOFError, ConnectionError):
                return None
        with start_announced(*command)[0] as server:
            address = scraping.http_address(server)
            before = serial(address)
            weir("certs", "renew", "--ca", authority.path, own)
            after = wait_for(lambda: (found := serial(address)) != before and found, "the new certificate")
            shown = openssl("x509", "-in", os.path.join(own, "cert.pem"), "-noout", "-serial")
            assert int(shown.split("=")[1], 16) == int(after, 16), shown
            assert scraping.ask(address, tls=client)[0] == 200


def query(address, text):
    """The values that Prometheus has; empty: none, or it is not there yet."""
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/query?" + urllib.parse.urlencode({"query": text})) as answer:
            return [float(result["value"][1]) for result in json.load(answer)["data"]["result"]]
    except OSError as error:
        assert getattr(error, "code", 503) == 503, f"{text}: {error.read()}"  # 503: it is not ready yet
        return []


def panels():
    """Those of Grafana's dashboard that show something."""
    with open(GRAFANA) as file:
        return [panel for panel in json.load(file)["panels"] if panel["type"] != "row"]


def lost(given, kept, place=""):
    """Where what was given is not in what was kept, which may have more."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return sum((lost(value, kept.get(name), f"{place}/{name}") for name, value in given.items()), [])
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return sum((lost(value, other, f"{place}[{i}]") for i, (value, other) in enumerate(zip(given, kept))), [])
    return [] if given == kept else [f"{place}: {given!r} became {kept!r}"]


def test_grafanas_own_models_keep_all_of_its_dashboard():
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    peer = os.path.join(ROOT, "tests", "integration", "peer_grafana.py")
    done = subprocess.run([PEER_PYTHON, peer, GRAFANA], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    with open(GRAFANA) as file:
        given = json.load(file)
    assert len(given["panels"]) > 20 and not lost(given, json.loads(done.stdout)), lost(given, json.loads(done.stdout))


def test_grafanas_dashboard_asks_only_for_metrics_that_there_are():
    rows = {row[3]: row[4] for row in scraping.table()}
    asked, ids, places = set(), set(), set()
    for panel in panels():
        assert panel["type"] in ("stat", "timeseries") and panel["targets"] and panel["title"], panel
        ids.add(panel["id"])
        places.add(tuple(panel["gridPos"][key] for key in "xywh"))
        for target in panel["targets"]:
            names = set(re.findall(r"\b(?:weir|process)_\w+", target["expr"]))
            assert names and names <= set(rows), f"{panel['title']}: {names - set(rows)} are no metrics"
            labels = set(re.findall(r"(?:by|on) \(([\w, ]+)\)", target["expr"])) | set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            labels |= set(re.findall(r"[{,](\w+)(?:=|!=|=~)", target["expr"]))
            known = {"instance", "job", *(rows[name] for name in names)}
            assert set(", ".join(labels).split(", ")) - {""} <= known, (panel["title"], labels)
            asked |= names
    assert len(ids) == len(places) == len(panels())
    assert {name for name in rows if name.startswith("weir_coordinator")} - asked == {"weir_coordinator_views_total"}


def test_prometheus_scrapes_each_program_and_answers_what_the_dashboard_asks():
    with Folder() as folder, monitored(folder, coordinator=("--http-names",)) as cluster:
        targets = [f"{host}:{port}" for host, port in sum(addresses(cluster).values(), [])]
        config = folder.file("prometheus.yml", json.dumps({"scrape_configs": [
            {"job_name": "weir", "scrape_interval": "1s", "scrape_timeout": "1s",
             "static_configs": [{"targets": targets}]}]}))
        address = own_address()
        with Process(scraping.tool("prometheus"), "--config.file", config, "--storage.tsdb.path", folder.file("tsdb"),
                     "--web.listen-address", address):
            wait_for(lambda: query(address, "sum(up)") == [len(targets)], "each program to be scraped")
            weir("submit", write_spec(folder), "train.hold=6", "--coordinator", cluster.address)
            wait_for(lambda: query(address, "sum(weir_worker_microbatches_total)") >= [6 * MICROBATCHES], "the microbatches")
            for panel in panels():
                for target in panel["targets"]:
                    text = target["expr"].replace("$__rate_interval", "1m")
                    if not text.endswith("> 0"):  # of refusals there may be none
                        wait_for(lambda: query(address, text), f"an answer to {text}")


def test_prometheus_finds_each_role_in_containers_by_the_certificate_of_a_member():
    """By the files of docker/prometheus, with folders and targets of this machine in place of those of containers."""
    with Folder() as folder:
        authority, address = Authority(folder), own_address()
        where = os.path.join(ROOT, "docker", "prometheus")
        names = sorted(os.listdir(where))
        assert names == ["compose.yml", "kubernetes.yml"]
        with Cluster(folder, servers=0, workers=0, options=(*HTTP, "--tls", authority.folder("coordinator"))) as cluster:
            cluster.server_options = (*HTTP, "--tls", authority.folder("server"))
            cluster.add_server()
            cluster.add_worker(options=(*HTTP, "--tls", authority.folder("worker")))
            targets = [f"{host}:{port}" for host, port in sum(addresses(cluster).values(), [])]
            static = f"static_configs: [{{targets: {json.dumps(targets)}}}]\n    scrape_interval: 1s"  # Debian's knows no Kubernetes
            for name in names:
                with open(os.path.join(where, name)) as file:
                    text = re.sub(r"/run/weir(-prometheus|/tls)", authority.folder("client"), file.read())
                text, found = re.subn(r"(?:dns|kubernetes)_sd_configs: \[.*\]", static, text)
                assert found == 1, name
                done = subprocess.run([scraping.tool("promtool"), "check", "config", folder.file(name, text)], capture_output=True, text=True,
                                      check=False)
                assert done.returncode == 0, done.stdout + done.stderr
            with Process(scraping.tool("prometheus"), "--config.file", folder.file("compose.yml"), "--storage.tsdb.path", folder.file("tsdb"),
                         "--web.listen-address", address):
                wait_for(lambda: query(address, "sum(up)") == [len(targets)], "each role to be scraped")


def assert_line(text):
    line = json.loads(text)
    assert list(line)[:4] == ["time", "level", "subsystem", "event"], text
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]), text
    assert all(re.fullmatch(r"\w+", key) and isinstance(value, (str, int, float, type(None))) for key, value in line.items()), text
    return line


def test_each_line_of_a_run_is_json_where_that_is_asked_for():
    with Folder() as folder:
        out = folder.file("out")
        weir("train", write_spec(folder), "--out", out, "--workers", 2, "--log-format", "json",
             env={**os.environ, "WEIR_LOG": "debug"})
        logs = {name: open(os.path.join(out, "logs", name)).read() for name in os.listdir(os.path.join(out, "logs"))}
        lines = {name: [assert_line(line) for line in text.splitlines()] for name, text in logs.items()}
        assert len(lines) == 4 and all(lines.values()), list(lines)
        every = sum(lines.values(), [])
        joined = [line for line in every if (line["subsystem"], line["event"]) == ("member", "joined")]
        members = {line["id"] for line in joined}  # one of them may have missed the coordinator, and joined again
        assert len(members) == 3 and all(line["term"] == 1 and isinstance(line["id"], str) for line in joined), joined
        assert {"coordinator", "parameters", "worker"} <= {line["subsystem"] for line in every}


def test_a_format_that_is_none_is_refused():
    with Folder() as folder:
        for command in ((program("weir-server"), "--store", "file://" + folder.file("store")),
                        (program("weir-worker"), "--data-root", folder.path), (program("weir"), "runs")):
            done = subprocess.run([*command, "--log-format", "xml"], capture_output=True, text=True, check=False)
            assert done.returncode == 2 and "text" in done.stderr and "json" in done.stderr and "xml" in done.stderr, done


def test_the_page_of_metrics_has_the_table():
    with open(os.path.join(ROOT, "docs", "MONITORING.md")) as file:
        lines = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*) \|$", file.read(), re.MULTILINE)
    kinds = {"COUNTER": "counter", "SECONDS": "counter", "GAUGE": "gauge"}
    assert lines == [(name, kinds[kind], "`run`, `tenant`" if label == "run" else f"`{label}`" if label else "", text)
                     for _, _, kind, name, label, _, text in scraping.table()]


if __name__ == "__main__":
    main(globals())
