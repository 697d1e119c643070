"""Reading /metrics: by HTTP over a socket of our own, with certificates where there are some, and promtool's opinion of it."""
import os
import re
import shutil
import socket
import ssl
import subprocess

from harness import PATIENCE, ROOT, Skip, wait_for

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
ROW = re.compile(r'^METRIC\((\w+), (\w+), (\w+), "(\w+)", "(\w*)", (.*), "(.*)"\)$', re.MULTILINE)


def http_address(process):
    """HOST, PORT of the --http of a process that was told port 0."""
    found = wait_for(lambda: re.search(r" http listening address=(\S+):(\d+) ", process.output()), "the port of HTTP")
    return found.group(1), int(found.group(2))


def connect(address, tls=None, name="coordinator.weir"):
    """tls: a folder of certificates; or "": none, but TLS. name: of the server's certificate."""
    connection = socket.create_connection(address, timeout=PATIENCE)
    if tls is None:
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls:
        context.load_verify_locations(os.path.join(tls, "ca.pem"))
        context.load_cert_chain(os.path.join(tls, "cert.pem"), os.path.join(tls, "key.pem"))
    else:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection, server_hostname=name)


def ask(address, path="/metrics", tls=None, **options):
    """(status, body) of a GET."""
    with connect(address, tls, **options) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    head, body = answer.split("\r\n\r\n", 1)
    return int(head.split()[1]), body


def parse(text):
    """{name: {labels as text: value}}."""
    metrics = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.match(line).groups()
            metrics.setdefault(name, {})[labels or ""] = float(value)
    return metrics


def scrape(address, **options):
    status, body = ask(address, **options)
    assert status == 200, (status, body)
    return parse(body)


def total(metrics, name):
    return sum(metrics[name].values())


def tool(name):
    """promtool, prometheus."""
    path = shutil.which(name, path=os.pathsep.join((os.environ["PATH"], os.path.join(ROOT, "build", "prometheus", "usr", "bin"))))
    if not path:
        raise Skip("prometheus is neither installed nor in build/prometheus")
    return path


def assert_well_formed(text):
    done = subprocess.run([tool("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr + done.stdout + text


def table():
    """The rows of metric.def: id, program, kind, name, label, values, help."""
    with open(os.path.join(ROOT, "common", "metrics", "metric.def")) as file:
        return ROW.findall(file.read())
