"""weir ui: who may ask it what, and what it answers, by plain HTTP. test_ui_browser.py looks at its page."""

import os
import random
import re
import signal
import socket
import stat

from dashboard import Dashboard
from harness import ROOT, Cluster, Folder, main, table_rows, wait_for, weir

NOWHERE = "127.0.0.1:1"  # a coordinator that is not there
MARKUP = "<img src=x onerror=alert(1)>"
PROTECTIONS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
)


def test_the_page_is_served_with_what_protects_it():
    with Dashboard(NOWHERE) as dashboard:
        for name in ("", *os.listdir(os.path.join(ROOT, "client", "ui", "assets")), "chart.min.js"):
            status, headers, text = dashboard.ask("GET", f"/{name}", Weir_Session=None, Origin=None)
            assert status == 200 and text, name
            assert {key: headers[key] for key in PROTECTIONS} == PROTECTIONS, (name, headers)
            assert all(part in headers["Content-Security-Policy"].split("; ") for part in POLICY), headers
            assert "unsafe" not in headers["Content-Security-Policy"], headers
        assert headers["Content-Type"].startswith("text/javascript"), headers
        _, _, page = dashboard.ask("GET", "/")
        modules = {name for name in os.listdir(os.path.join(ROOT, "client", "ui", "assets")) if name.endswith(".js")}
        assert modules <= set(re.findall(r'(?:href|src)="([^"]+)"', page)), "all are asked for at once, not one after the other"
        assert dashboard.session not in page and "http" not in page.replace("http-equiv", ""), "no session, no other host"
        refused = dashboard.ask("GET", "/api/overview", Weir_Session=None)[1]
        assert {key: refused[key] for key in PROTECTIONS} == PROTECTIONS, refused


def test_files_are_small_together():
    with Dashboard(NOWHERE) as dashboard:
        sizes = {
            name: int(dashboard.ask("GET", f"/{name}")[1]["Content-Length"])
            for name in (*os.listdir(os.path.join(ROOT, "client", "ui", "assets")), "chart.min.js")
        }
    assert sum(sizes.values()) < 150 * 1024, sizes


def test_only_its_own_page_may_ask():
    with Dashboard(NOWHERE) as dashboard:
        other, twin = f"http://127.0.0.1:{dashboard.port + 1}", "0" * len(dashboard.session)
        refused = [
            (401, {"Weir_Session": None}),
            (401, {"Weir_Session": ""}),
            (401, {"Weir_Session": twin}),
            (401, {"Weir_Session": dashboard.session[:-1]}),
            (401, {"Weir_Session": dashboard.session + "0"}),
            (403, {"Origin": other}),
            (403, {"Origin": "http://evil.example"}),
            (403, {"Origin": "null"}),
            (403, {"Origin": dashboard.origin.replace("http:", "https:")}),
            (403, {"Sec_Fetch_Site": "cross-site"}),
            (403, {"Sec_Fetch_Site": "same-site"}),
            # names that were made to resolve to this machine
            (421, {"Host": f"evil.example:{dashboard.port}", "Origin": None}),
            (421, {"Host": f"127.0.0.1.evil.example:{dashboard.port}", "Origin": None}),
        ]
        for wanted, headers in refused:
            for method, path, body in (("GET", "/api/overview", None), ("POST", "/api/cancel", '{"run": "a-000000"}')):
                status, _, text = dashboard.ask(method, path, body, **headers)
                assert status == wanted, (method, headers, status, text)
                assert dashboard.session not in text
        assert (
            dashboard.ask("GET", "/api/overview", Origin=None)[0] == 503
        ), "browsers send no Origin when a page reads from where it is"
        for headers in ({"Origin": None}, {"Content_Type": "text/plain"}, {"Content_Type": "application/jsonp"}):
            status, _, text = dashboard.ask("POST", "/api/cancel", '{"run": "a-000000"}', **headers)
            assert status == (403 if "Origin" in headers else 415), (headers, status, text)
        status, headers, _ = dashboard.ask("OPTIONS", "/api/cancel")
        assert status == 405 and not [
            name for name in headers if name.lower().startswith("access-control")
        ], "no other origin is let in"
        assert dashboard.ask("GET", "/api/cancel?run=a")[0] == 405 and dashboard.ask("POST", "/api/overview", "{}")[0] == 405
        assert dashboard.ask("GET", "/api/nothing")[0] == dashboard.ask("GET", "/../Makefile")[0] == 404


def test_a_coordinator_that_is_away_is_said():
    with Dashboard(NOWHERE) as dashboard:
        assert "cannot reach the coordinator at 127.0.0.1:1" in dashboard.get("overview", 503)["error"]


def garbage(draw):
    """Bytes that are no HTTP, or nearly."""
    lines = [
        b"GET / HTTP/1.1",
        b"POST /api/cancel HTTP/1.1",
        b"Host: 127.0.0.1",
        b"Content-Length: 99999999999",
        b"Content-Length: -1",
        b"Transfer-Encoding: chunked",
        b"Weir-Session: " + b"a" * 9000,
        b"\x00\xff\xfe",
        b": no name",
        b"GET /%00%ff%2e%2e/ HTTP/1.1",
        b"GET " + b"/a" * 4000 + b" HTTP/1.1",
        b"zz",
        b"",
    ]
    return b"\r\n".join(draw.choice(lines) for _ in range(draw.randrange(1, 8))) + draw.choice((b"\r\n\r\n", b"", b"\n"))


def test_garbage_does_no_harm():
    draw = random.Random(5)
    bodies = [
        "",
        "{",
        "[]",
        "null",
        '"text"',
        '{"run": 1}',
        '{"run": "a", "run": "b"}',
        '{"run": "a\\u0000b"}',
        '{"other": 1}',
        '{"run": {"a": []}}',
        "[" * 5000,
        '{"run": "' + "a" * 60000 + '"}',
        "\xff",
        '{"run": ["a"]}',
    ]
    with Dashboard(NOWHERE) as dashboard:
        for _ in range(150):
            with socket.create_connection(("127.0.0.1", dashboard.port), timeout=60) as connection:
                connection.sendall(garbage(draw))
        for body in bodies:
            status, _, text = dashboard.ask("POST", "/api/cancel", body.encode("latin-1"))
            assert status in (400, 503) and "error" in text, (body[:40], status, text)
        assert dashboard.ask("POST", "/api/set", '{"run": "a", "settings": "priority=1"}')[0] == 400, "a list"
        assert dashboard.ask("POST", "/api/set", '{"run": "a", "settings": [1]}')[0] == 400, "of texts"
        assert dashboard.ask("POST", "/api/cancel", "{" + " " * 70000 + "}")[0] == 413
        for query in (
            "run=%ff",
            "run=a%00b",
            "since=-1",
            "since=1e9",
            "since=99999999999999999999999",
            "since=",
            "points=5000000000",
        ):
            assert dashboard.ask("GET", f"/api/series?{query}")[0] in (400, 503), query
        assert dashboard.process.child.poll() is None
        assert dashboard.ask("GET", "/")[0] == 200


def test_it_listens_on_this_machine_alone():
    for listen in (
        "0.0.0.0:0",
        "[::]:0",
        "10.0.0.1:0",
        "example.com:80",
        "unix:/tmp/weir.sock",
        "7070",
        ":0",
        "",
        "127.0.0.1:",
        "127.0.0.1:99999",
        "a" * 5000 + ":1",
    ):
        done = weir("ui", "--listen", listen, "--coordinator", NOWHERE, status=2)
        assert done.stderr.startswith("weir: ") and len(done.stderr.splitlines()) == 1, (listen, done.stderr)
        if listen in ("0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.com:80"):
            assert "for this machine alone" in done.stderr, (listen, done.stderr)
    for listen in ("localhost:0", "127.0.0.2:0"):
        with Dashboard(NOWHERE, "--listen", listen) as dashboard:
            assert dashboard.url.startswith(f"http://{listen[:-2]}:"), dashboard.url


def test_ctrl_c_ends_it_and_each_has_a_session_of_its_own():
    with Dashboard(NOWHERE) as first, Dashboard(NOWHERE) as second:
        assert first.session != second.session and len(first.session) == 48
        assert first.ask("GET", "/api/overview", Weir_Session=second.session)[0] == 401
        first.process.send(signal.SIGINT)
        assert first.process.wait() == 0


def test_a_browser_is_given_the_link_by_a_file_that_is_the_users():
    with Folder() as folder:
        script = folder.file(
            "xdg-open",
            f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder.path}/arguments.new\nmv {folder.path}/arguments.new {folder.path}/arguments\n',
        )
        os.chmod(script, 0o700)
        environment = {**os.environ, "PATH": f"{folder.path}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": folder.path}
        with Dashboard(NOWHERE, "--open", env=environment) as dashboard:
            with open(
                wait_for(lambda: os.path.exists(folder.file("arguments")) and folder.file("arguments"), "the browser")
            ) as file:
                page = file.read().strip()
            assert dashboard.session not in page, "all users can read command lines"
            assert stat.S_IMODE(os.stat(page).st_mode) == 0o600
            with open(page) as file:
                assert dashboard.url in file.read()
            dashboard.process.send(signal.SIGTERM)
            dashboard.process.wait()
            assert not os.path.exists(page)
        os.unlink(script)
        with Dashboard(NOWHERE, "--open", env={**environment, "PATH": folder.path}) as dashboard:
            wait_for(lambda: "open the link above" in dashboard.process.output(), "what to do without one")


def hostile_spec(folder):
    """A run whose message has markup: its data are not there."""
    spec = folder.small_spec(folder.model("mlp", "--hidden", 4), 2, 4, 4)
    with open(spec) as file:
        text = (
            file.read()
            .replace(f"root: {folder.path}", f'root: "{folder.path}/{MARKUP}"')
            .replace("name: small", "name: hostile")
        )
    return folder.file("hostile.yaml", text)


def reads_of(run):
    """Query of each call that reads."""
    return {"overview": {}, "series": {"run": run, "points": 50}, "run": {"run": run}, "checkpoints": {"run": run}, "sweeps": {}}


def test_every_call_answers_for_a_cluster():
    with Folder() as folder, Cluster(folder) as cluster, Dashboard(cluster.address) as dashboard:
        folder.small_data(240, 48)
        spec = folder.small_spec(folder.model("mlp", "--hidden", 8, "--seed", 5), 2, 12, 4)
        with open(spec, "a") as file:
            file.write("priority: 0\n")
        hostile = weir("submit", hostile_spec(folder), "--coordinator", cluster.address).stdout.strip()
        failed = wait_for(
            lambda: (info := dashboard.get("run", run=hostile)).get("state") == "failed" and info, "the run to fail"
        )
        assert MARKUP in failed["message"], failed
        run = weir("submit", spec, "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: dashboard.get("run", run=run).get("state") == "done", "the run to end")
        answers = {call: dashboard.get(call, **query) for call, query in reads_of(run).items()}
        assert (
            answers["run"] == answers["run"] | {"run": run, "step": 12, "steps": 12}
            and len(answers["run"]["weights_sha256"]) == 64
        )
        told = answers["run"]["spec"]
        assert told["priority"] == 0 and told["train"]["seed"] == 3 and told["model"]["loss"] == "cross_entropy", told
        assert answers["sweeps"] == {}
        rows = {row["run"]: row for row in answers["overview"]["runs"]}
        assert (
            rows[run]["state"] == "done"
            and rows[run]["steps"] == 12
            and rows[hostile]["state"] == "failed"
            and len(rows) == 2
        ), rows
        assert {member["role"] for member in answers["overview"]["members"]} == {"server", "worker"}
        curves = {curve["metric"]: curve for curve in answers["series"]["curves"]}
        assert len(curves["loss"]["steps"]) == len(curves["loss"]["mean"]) > 0 and "accuracy" in curves
        assert dashboard.get("sweep", 404, sweep="none-000000")["error"]
        assert "error" in dashboard.get("run", 404, run="none-000000")
        assert set(table_rows("client/ui/call.def", "CALL")) == set(reads_of(run)) | {"sweep"} | set(
            WRITES
        ), "each call is tried here"


WRITES = (
    "pause",
    "resume",
    "stop",
    "cancel",
    "set",
    "fork",
    "drain_worker",
    "drain_server",
    "readmit",
    "stop_sweep",
    "extend_sweep",
)


def test_what_a_page_asks_is_done():
    with Folder() as folder, Cluster(folder) as cluster, Dashboard(cluster.address) as dashboard:
        folder.small_data(240, 48)
        spec = folder.small_spec(folder.model("mlp", "--hidden", 8, "--seed", 5), 2, 10**9, 10**9)
        run = weir("submit", spec, "--coordinator", cluster.address).stdout.strip()
        state = lambda wanted: wait_for(
            lambda: dashboard.get("run", run=run).get("state") == wanted, f"the run to be {wanted}"
        )
        state("running")
        assert dashboard.post("set", {"run": run, "settings": ["priority=7"]})["priority"] == 7
        assert "priority" in dashboard.post("set", {"run": run, "settings": ["priority=high"]}, 400)["error"]
        dashboard.post("pause", {"run": run})
        state("paused")
        dashboard.post("resume", {"run": run})
        state("running")
        dashboard.post("cancel", {"run": run})
        state("cancelled")
        kept = dashboard.get("checkpoints", run=run)["checkpoints"]
        settings = ["train.optimizer.lr=0.01"]
        fork = dashboard.post(
            "fork", {"run": run, "has_step": True, "step": kept[-1]["step"], "settings": settings, "name": "fork"}
        )
        assert fork["run"].startswith("fork-") and fork["step"] == kept[-1]["step"], fork
        forked = dashboard.get("run", run=fork["run"])
        assert forked["parent"] == run and forked["spec"]["train"]["optimizer"]["lr"] == 0.01, forked
        assert "train.nothing" in dashboard.post("fork", {"run": run, "settings": ["train.nothing=1"]}, 400)["error"]
        dashboard.post("cancel", {"run": fork["run"]})
        dashboard.post("stop", {"run": run}, 400)
        worker = next(member["id"] for member in dashboard.get("overview")["members"] if member["role"] == "worker")
        assert dashboard.post("drain_worker", {"worker": worker})["state"] == "draining"
        for call, fields in (
            ("drain_worker", {"worker": "none"}),
            ("drain_server", {"server": "none"}),
            ("readmit", {"worker": "none"}),
            ("stop_sweep", {"sweep": "none-000000"}),
            ("extend_sweep", {"sweep": "none-000000", "budget": {"trials": "9"}}),
        ):
            assert dashboard.post(call, fields, 404)["error"], call


if __name__ == "__main__":
    main(globals())
