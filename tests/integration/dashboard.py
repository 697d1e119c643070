"""`weir ui` as tests use it: its process, and calls as its page makes them."""

import gzip
import http.client
import json

from harness import Process, program, wait_for


class Dashboard:
    """A dashboard of a coordinator; ended at the end of the `with` block."""

    def __init__(self, coordinator, *options, **process):
        self.process = Process(program("weir"), "ui", "--coordinator", coordinator, *options, **process)
        self.url = wait_for(
            lambda: next((line for line in self.process.output().splitlines() if line.startswith("http://")), None),
            "the dashboard's link",
        )
        self.origin, _, self.session = self.url.partition("/#session=")
        self.host, self.port = self.origin.removeprefix("http://"), int(self.origin.rpartition(":")[2])

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.__exit__()

    def ask(self, method, path, body=None, **headers):
        """(status, headers, text); a header that is None is not sent, and _ in its name is -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {"Weir-Session": self.session, "Origin": self.origin, "Host": self.host}
        if body is not None:
            given["Content-Type"] = "application/json"
        given.update({name.replace("_", "-"): value for name, value in headers.items()})
        connection.request(method, path, body, {name: value for name, value in given.items() if value is not None})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.headers["Content-Encoding"] == "gzip":
            text = gzip.decompress(text)
        return answer.status, answer.headers, text.decode()

    def get(self, call, status=200, **query):
        return self.checked(
            "GET", f"/api/{call}?" + "&".join(f"{name}={value}" for name, value in query.items()), None, status
        )

    def post(self, call, fields, status=200):
        return self.checked("POST", f"/api/{call}", json.dumps(fields), status)

    def checked(self, method, path, body, status):
        """The answer as JSON, which it must be."""
        found, headers, text = self.ask(method, path, body)
        assert found == status, f"{method} {path}: {found}, expected {status}: {text[:500]}"
        assert headers["Content-Type"] == "application/json", headers
        return json.loads(text)
