#!/usr/bin/env python3
"""Opens the dashboard's page in a headless Chromium. peer_paint.py URL CHROMIUM paint TIMES: opens Fleet and Runs so often, each
with nothing cached, and prints as JSON how many ms after its address each thing was there. peer_paint.py URL CHROMIUM tab: opens
Fleet, prints "open" and keeps it until the end of the input."""
import json
import os
import sys

from playwright.sync_api import sync_playwright

SIZE = {"width": 1440, "height": 900}
FLEET, RUNS = ".tile strong", ".long tbody .run-name"
# When a text is seen: the time of the frame that follows it.
WATCH = """window.shown = new Promise((resolve) => {
  const look = () => requestAnimationFrame(() => {
    if (document.querySelector("SELECTOR")?.textContent) requestAnimationFrame(() => resolve(performance.now()));
    else look();
  });
  look();
});"""
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def times_of(browser, address, selector, storage=None):
    """(ms until something is painted, ms until the selector's text is seen, what the page has stored); nothing is cached before."""
    context = browser.new_context(viewport=SIZE, storage_state=storage)
    page = context.new_page()
    page.add_init_script(WATCH.replace("SELECTOR", selector))
    page.goto(address)
    shown = page.evaluate("window.shown")
    found = page.evaluate(FIRST_PAINT), shown, context.storage_state()
    context.close()
    return found


def paint(browser, url, times):
    painted, fleet, runs = [], [], []
    for _ in range(times):
        first, shown, storage = times_of(browser, url, FLEET)  # the page keeps the link's session
        painted.append(first)
        fleet.append(shown)
        runs.append(times_of(browser, url.partition("#")[0] + "#/runs", RUNS, storage)[1])
    print(json.dumps({"the first paint": painted, "the numbers of the fleet": fleet, "the rows of runs": runs}))


def keep_open(browser, url):
    page = browser.new_page(viewport=SIZE)
    page.goto(url)
    page.wait_for_selector(FLEET)
    print("open", flush=True)
    sys.stdin.read()


def main():
    url, chromium, what = sys.argv[1:4]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        if what == "tab":
            keep_open(browser, url)
        else:
            paint(browser, url, int(sys.argv[4]))
        browser.close()


if __name__ == "__main__":
    main()
