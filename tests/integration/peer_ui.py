#!/usr/bin/env python3
"""Looks at the dashboard's page with a headless Chromium: peer_ui.py URL CHROMIUM CHECK [RUN]. What the coordinator would
answer is made up (ui_answers.py), but for checks of a RUN. Exits with 1 and says what is wrong. shots: the pictures of docs/ui,
into the folder RUN."""

import json
import os
import re
import sys
from urllib.parse import parse_qs, urlparse

from playwright.sync_api import expect, sync_playwright

import ui_answers

PATIENCE_MS = float(os.environ.get("WEIR_TEST_PATIENCE", "240")) * 1000
MARKUP = "<img src=x onerror=alert(1)>"
VIEWS = ("fleet", "runs", "run", "compare", "sweeps", "sweep", "forks", "members")
MADE = {"overview": ui_answers.overview(), "sweeps": ui_answers.sweeps()}
RUNS = ui_answers.RUNS
SHOTS = {"fleet": "light", "run": "dark", "runs": "light", "compare": "light", "sweep": "dark", "forks": "light", "members": "light"}
HASHES = {
    "run": f"#/runs/{RUNS[0]}",
    "compare": f"#/compare?runs={','.join(ui_answers.COMPARED)}",
    "sweep": "#/sweeps/lr-search-1a2b3c",
    "forks": "#/sweeps/pbt-vit-77aa00",
}
# What the page tells would be gone after five seconds, be it looked at by then or not.
STAYS = "const {remove} = Element.prototype; Element.prototype.remove = function () { this.matches('.toast') || remove.call(this); }"
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ui_contrast.js")) as script:
    CONTRAST = script.read()


class Page:
    """A page of the dashboard, and what it has asked and said."""

    def __init__(self, browser, url, theme="light", answers=None, size=(1440, 900)):
        self.url, self.origin, self.answers = url, url.partition("#")[0].rstrip("/"), answers
        self.requests, self.troubles, self.posted, self.sizes = [], [], [], {}
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=theme, reduced_motion="reduce"
        )
        context.add_init_script(STAYS)
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: message.type in ("error", "warning") and self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        if answers is not None:
            self.page.route("**/api/**", self.answer)
        self.page.goto(url)

    def answer(self, route):
        url = urlparse(route.request.url)
        name, query = url.path.rsplit("/", 1)[1], {key: values[0] for key, values in parse_qs(url.query).items()}
        if route.request.method == "POST":
            self.posted.append((name, route.request.post_data_json))
        made = self.answers.get(name, made_up(name, query))
        status = 400 if "error" in made else 200
        body = json.dumps(made)
        self.sizes.setdefault((name, query.get("since", "0") != "0"), []).append(len(body))
        route.fulfill(status=status, content_type="application/json", body=body)

    def show(self, view):
        """Waits until the view is there."""
        self.page.evaluate("(hash) => { location.hash = hash }", HASHES.get(view, f"#/{view}"))
        expect(self.page.locator("#view")).to_have_attribute(
            "data-view", {"run": "runs-one", "sweep": "sweeps-one", "forks": "sweeps-one"}.get(view, view)
        )
        expect(
            self.page.locator(
                {
                    "fleet": ".tile strong",
                    "run": ".strip .fact dd",
                    "compare": ".plain tbody tr",
                    "sweep": ".axis-value",
                    "forks": ".lineage text",
                }.get(view, ".long tbody tr")
            ).first
        ).not_to_be_empty()
        if view in ("run", "compare", "sweep", "forks"):
            self.assert_drawn(r"[1-9]")

    def assert_drawn(self, words):
        """What the first chart is said to show."""
        expect(self.page.locator("canvas").first).to_have_attribute("aria-label", re.compile(f": .*{words}"))

    def key(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def assert_well(self):
        """Nothing failed, and nothing was asked of anybody else."""
        assert not self.troubles, self.troubles
        assert all(url.startswith(self.origin + "/") for url in self.requests), [
            url for url in self.requests if not url.startswith(self.origin)
        ]


def made_up(name, query):
    if name == "overview":
        return ui_answers.overview(int(query.get("since", 0))) if query.get("since", "0") != "0" else MADE["overview"]
    makers = {
        "series": lambda: ui_answers.series(query["run"], since=int(query.get("since", 0))),
        "checkpoints": lambda: ui_answers.checkpoints(query["run"]),
        "run": lambda: ui_answers.run_info(query["run"]),
        "sweep": lambda: ui_answers.sweep(query["sweep"], has_forks="pbt" in query["sweep"]),
    }
    return makers[name]() if name in makers else MADE.get(name, {})


def check_views(browser, url, _):
    """Every view in both themes: readable, without errors, from this host alone, with few rows for many runs."""
    for theme in ("light", "dark"):
        page = Page(browser, url, theme, {})
        for view in VIEWS:
            page.show(view)
            faint = page.page.evaluate(CONTRAST)
            assert not faint, (view, theme, faint)
            assert page.page.evaluate(
                "document.documentElement.scrollWidth <= innerWidth"
            ), f"{view} is wider than the window"
            shown = page.page.locator("tbody tr").count()
            assert 0 <= shown < 120, f"{view} has {shown} rows"
        page.show("runs")
        expect(page.page.locator(".tools")).to_contain_text("1,000 runs")
        assert "session" not in page.page.url, "the session stays out of what people copy"
        page.page.wait_for_event("response", lambda response: "overview" in response.url and "since=0" not in response.url)
        assert max(page.sizes["overview", True]) < 50 * 1024, page.sizes
        page.assert_well()


def check_keys(browser, url, _):
    """All that is there can be done by keyboard alone."""
    page = Page(browser, url, "light", {})
    page.show("fleet")
    page.key("2")
    expect(page.page.locator(".long tbody tr").first).to_be_visible()
    page.key("/")
    page.page.keyboard.type("state:running")
    expect(page.page.locator(".tools")).to_contain_text("of 1,000 runs")
    page.key("Enter")
    cursor = page.page.locator("tr[data-cursor]")
    first = cursor.get_attribute("data-key")
    page.key("j")
    second = cursor.get_attribute("data-key")
    assert first != second
    page.key("x", "k", "x")
    expect(page.page.locator("tr[aria-selected]")).to_have_count(2)
    page.key("c")
    expect(page.page.locator("#view")).to_have_attribute("data-view", "compare")
    expect(page.page.locator(".plain tbody tr .run-name")).to_have_text([second, first])
    page.key("t")
    expect(page.page.locator(".plot-table tbody tr").first).to_be_visible()
    page.key("t", "Escape")
    expect(page.page.locator("#view")).to_have_attribute("data-view", "runs")
    for _ in range(40):
        page.key("j")
    expect(cursor).to_be_in_viewport()
    opened = cursor.get_attribute("data-key")
    page.key("Enter")
    expect(page.page.locator("h1")).to_have_text(opened)
    expect(page.page.locator(".events li").first).to_be_visible()
    page.key("]", "]")
    expect(page.page.locator(".events [aria-current]")).to_contain_text("3 workers, 24 executors")
    page.key("[")
    expect(page.page.locator(".events [aria-current]")).to_contain_text("running")
    before = page.page.evaluate("document.documentElement.dataset.theme ?? 'light'")
    page.key("d")
    assert page.page.evaluate("document.documentElement.dataset.theme") != before
    page.key("?")
    expect(page.page.locator("dialog")).to_contain_text("Filter")
    page.key("Escape")
    expect(page.page.locator("dialog")).to_have_count(0)
    page.key("Escape")
    expect(page.page.locator("#view")).to_have_attribute("data-view", "runs")
    page.assert_well()


def check_brush(browser, url, _):
    """A brush on an axis, by keyboard, keeps the trials of its range."""
    page = Page(browser, url, "light", {})
    page.show("sweep")
    page.page.locator("[data-axis='accuracy'] .axis-grab").focus()
    page.key("ArrowUp")
    expect(page.page.locator("#view")).to_contain_text("within the brushes")
    kept = page.page.locator(".trial-line[data-kept='yes']").count()
    assert 0 < kept < 40, kept
    page.key("Escape")
    expect(page.page.locator(".trial-line[data-kept='yes']")).to_have_count(40)
    page.assert_well()


def check_schedulers(browser, url, _):
    """Rungs are told in the unit that the scheduler has them in; a population is no bound of how many trials there are."""
    made = ui_answers.sweep("lr-search-1a2b3c")
    made["spec"]["schedule"]["unit"] = "epochs"
    page = Page(browser, url, "light", {"sweep": made})
    page.show("sweep")
    expect(page.page.locator("[aria-label=Rungs] tbody th").first).to_have_text("epoch 60")
    expect(page.page.locator(".strip")).to_contain_text("12,340 epochs")
    expect(page.page.locator(".strip")).to_contain_text("40 of 60")
    page.assert_well()
    page = Page(browser, url, "light", {})
    page.show("forks")
    expect(page.page.locator(".strip")).to_contain_text("28, population 16")
    page.assert_well()


def check_questions(browser, url, _):
    """What ends something asks first; the focus comes back to where it was."""
    page = Page(
        browser, url, "light", {"cancel": {"run": RUNS[0]}, "drain_worker": {"error": "worker-0: there is no such worker"}}
    )
    page.show("run")
    button = page.page.get_by_role("button", name="Cancel", exact=True)
    button.focus()
    page.key("Enter")
    expect(page.page.locator("dialog button[value=no]")).to_be_focused()
    page.key("Enter")
    expect(button).to_be_focused()
    page.key("Enter", "Escape")
    expect(button).to_be_focused()
    assert not page.posted, page.posted
    page.key("Enter", "Tab", "Enter")
    expect(page.page.locator(".toast")).to_contain_text("cancel is on its way")
    assert page.posted == [("cancel", {"run": RUNS[0]})], page.posted
    page.show("members")
    page.page.get_by_role("button", name="Drain worker-0").click()
    page.page.locator("dialog button[value=yes]").click()
    expect(page.page.locator(".toast.bad")).to_contain_text("there is no such worker")
    assert page.posted[1:] == [("drain_worker", {"worker": "worker-0"})], page.posted
    page.troubles = [text for text in page.troubles if "400" not in text]  # Chromium's own line for the refusal
    page.assert_well()


def check_actions(browser, url, _):
    """What a run, its checkpoints and a sweep may have done, from the keyboard; what is refused is said."""
    fork = {"run": "cooler-0abc12", "step": 3500, "notes": ["the schedule begins anew"]}
    page = Page(browser, url, "light", {"fork": fork, "set": {"run": RUNS[0]}, "extend_sweep": {"error": "budget.trials: 60 is too few"}})
    page.show("run")
    checkpoints = page.page.locator(".checkpoints li")
    expect(checkpoints).to_have_count(9)
    expect(checkpoints.first).to_contain_text("step 4,000")
    expect(checkpoints.first).to_contain_text(f"accuracy {100 * ui_answers.accuracy_at(ui_answers.row_of(RUNS[0]), 4000):.2f} %, loss")
    expect(page.page.get_by_role("button", name="Fork from step 1,000")).to_have_count(0)  # no server could load it
    page.key("e")
    expect(page.page.locator("dialog code").first).to_have_text(f"weir export {RUNS[0]} -o resnet50-imagenet.onnx")
    page.key("Escape")
    page.page.get_by_role("button", name="Export step 4,000").click()
    expect(page.page.locator("dialog code").first).to_have_text(
        f"weir export {RUNS[0]} --step 4000 -o resnet50-imagenet-4000.onnx"
    )
    page.key("Escape")
    expect(page.page.locator("dialog")).to_have_count(0)
    page.page.get_by_role("button", name="Fork from step 3,500").focus()
    page.key("Enter")
    page.page.keyboard.type("train.optimizer.lr=0.01")
    page.key("Enter")
    page.page.keyboard.type(" train.clip_norm=1 ")
    page.key("Tab", "Tab")
    page.page.keyboard.type("cooler")
    page.key("Enter")
    expect(page.page.locator("h1")).to_have_text("cooler-0abc12")
    expect(page.page.locator(".toast")).to_contain_text("goes on from step 3,500")
    expect(page.page.locator(".toast")).to_contain_text("the schedule begins anew")
    settings = ["train.optimizer.lr=0.01", "train.clip_norm=1"]
    wanted = {"run": RUNS[0], "has_step": True, "step": 3500, "settings": settings, "name": "cooler"}
    assert page.posted == [("fork", wanted)], page.posted
    page.show("run")
    expect(page.page.locator("h1")).to_have_text(RUNS[0])
    expect(page.page.get_by_role("button", name="Limits")).to_be_visible()  # it is known what they are
    expect(page.page.get_by_role("button", name="Raise hold")).to_be_hidden()  # it has none
    page.key("f", "Escape")
    expect(page.page.locator("dialog")).to_have_count(0)
    page.key("l")
    expect(page.page.locator("dialog input").first).to_be_focused()
    page.page.keyboard.type("7")
    page.key("Tab", "Tab")
    page.page.keyboard.press("Delete")
    page.key("Enter")
    expect(page.page.locator(".toast", has_text="priority=7, workers.max=null")).to_be_visible()
    assert page.posted[1:] == [("set", {"run": RUNS[0], "settings": ["priority=7", "workers.max=null"]})], page.posted
    page.show("sweep")
    page.page.get_by_role("button", name="Extend", exact=True).click()
    page.page.keyboard.type("60")
    page.key("Enter")
    expect(page.page.locator(".toast.bad")).to_contain_text("60 is too few")
    assert page.posted[2:] == [("extend_sweep", {"sweep": "lr-search-1a2b3c", "budget": {"trials": "60"}})], page.posted
    page.page.get_by_role("button", name="Compare the best 5").click()
    expect(page.page.locator("#view")).to_have_attribute("data-view", "compare")
    expect(page.page.locator(".plain tbody tr .run-name")).to_have_count(5)
    page.troubles = [text for text in page.troubles if "400" not in text]
    page.assert_well()


def check_events(browser, url, _):
    """Events by kind: a note is no fault; keys go among those that are shown."""
    page = Page(browser, url, "light", {})
    page.show("run")
    events = page.page.locator(".events li")
    expect(events.first).to_be_visible()
    expect(page.page.locator(".mark[data-kind=note]")).to_have_count(1)
    expect(page.page.locator(".mark[data-kind=fault]")).to_have_count(2)
    page.page.get_by_label("Kinds of events").select_option("trouble")
    expect(events).to_have_count(3)
    page.page.locator("h1").click()
    page.key("]")
    expect(page.page.locator(".events [aria-current]")).to_contain_text("cannot reach server-1")
    page.key("]", "]", "]")
    expect(page.page.locator(".events [aria-current]")).to_contain_text("roll-back")
    page.assert_well()


def check_held(browser, url, _):
    """A run that rests: it is resumed from its newest checkpoint at once, from an older one after a question; a hold is raised."""
    states = {}

    def page_of(state, **info):
        row = {**MADE["overview"]["runs"][0], "state": state}
        answers = {
            "overview": {**MADE["overview"], "runs": [row]},
            "run": {**ui_answers.run_info(RUNS[0]), "state": state, **info},
            "resume": {"run": RUNS[0]},
            "set": {"run": RUNS[0]},
        }
        states[state] = Page(browser, url, "light", answers)
        states[state].show("run")
        return states[state]

    page = page_of("paused")
    page.page.get_by_role("button", name="Resume from step 3,500").click()
    expect(page.page.locator("dialog")).to_contain_text("later checkpoints are dropped")
    page.key("Enter")  # the focus is on what changes nothing
    page.key("p")
    expect(page.page.locator(".toast")).to_contain_text("resume is on its way")
    assert page.posted == [("resume", {"run": RUNS[0]})], page.posted
    expect(page.page.get_by_role("button", name="Raise hold")).to_be_hidden()
    page = page_of("held", hold=4200)
    page.page.get_by_role("button", name="Raise hold").click()
    expect(page.page.locator("dialog")).to_contain_text("held at step 4,200")
    page.page.keyboard.type("4,800")
    page.key("Enter")
    expect(page.page.locator(".toast")).to_contain_text("train.hold=4800")
    assert page.posted == [("set", {"run": RUNS[0], "settings": ["train.hold=4800"]})], page.posted
    expect(page.page.get_by_role("button", name="Resume from step 3,500")).to_be_hidden()
    for page in states.values():
        page.assert_well()


def check_empty(browser, url, _):
    """A view without anything in it says what fills it."""
    empty = {"overview": {"cursor": 1, "is_whole": True, "fleet": {}, "now_unix_ms": ui_answers.NOW}, "sweeps": {}}
    page = Page(browser, url, "light", empty)
    for view, command in (
        ("fleet", "weir submit"),
        ("runs", "weir submit"),
        ("sweeps", "weir sweep"),
        ("members", "weir-worker"),
        ("compare", "weir runs"),
    ):
        page.page.evaluate("(hash) => { location.hash = hash }", f"#/{view}")
        expect(page.page.locator(".empty code:visible", has_text=command).first).to_be_visible()
        assert not page.page.evaluate(CONTRAST), view
    page.assert_well()


def check_markup(browser, url, _):
    """What others have named or written is text, wherever it is shown."""
    row = {
        **MADE["overview"]["runs"][0],
        "run": MARKUP,
        "name": MARKUP,
        "message": MARKUP,
        "tenant": MARKUP,
        "objective": MARKUP,
        "parent": MARKUP,
    }
    member = {
        "id": MARKUP,
        "role": "worker",
        "state": MARKUP,
        "message": MARKUP,
        "device": MARKUP,
        "labels": [MARKUP],
        "executors": 1,
        "seats": [{"run": MARKUP, "executors": 1}],
    }
    overview = {
        "cursor": 1,
        "is_whole": True,
        "runs": [row, {**row, "run": MARKUP + "2", "state": "queued"}],
        "members": [member, {**member, "id": MARKUP + "2", "role": "server"}],
        "now_unix_ms": ui_answers.NOW,
        "fleet": {"queue": [MARKUP + "2"], "queued": 1, "tenant": MARKUP, "store_message": MARKUP},
        "history": {
            "unix_ms": [ui_answers.NOW - 2000, ui_answers.NOW],
            "executors": [1, 1],
            "tracks": [{"run": MARKUP, "executors": [1, 1]}],
        },
    }
    series = {**ui_answers.series("x"), "events": [{"step": 1, "kind": MARKUP, "message": MARKUP}]}
    sweep = ui_answers.sweep("x", 4)
    sweep["trials"][0].update(failure=MARKUP, state=MARKUP, values=[{"path": "train.optimizer.momentum", "value": MARKUP}])
    sweep.update(sweep=MARKUP, message=MARKUP)
    page = Page(
        browser,
        url,
        "light",
        {
            "overview": overview,
            "series": series,
            "run": {**ui_answers.run_info(MARKUP), "message": MARKUP, "weights_sha256": MARKUP},
            "sweep": sweep,
            "sweeps": {"sweeps": [{"sweep": MARKUP, "message": MARKUP, "tenant": MARKUP}]},
        },
    )
    code = page.page.evaluate("encodeURIComponent", MARKUP)
    for place in ("fleet", "runs", f"runs/{code}", f"compare?runs={code},{code}2", "sweeps", f"sweeps/{code}", "members"):
        page.page.evaluate("(hash) => { location.hash = hash }", f"#/{place}")
        expect(page.page.locator("#view")).to_contain_text(MARKUP)
        assert page.page.locator("#view img").count() == 0, place
    page.assert_well()


def check_unloaded(browser, url, _):
    """A file that does not come is told of, be it read by another one alone."""
    for file in ("main.js", "sweep_data.js", "base.css"):
        page = browser.new_page()
        page.route(f"**/{file}", lambda route: route.abort())
        page.goto(url)
        expect(page.locator("#banner + .banner")).to_have_text("A part of this page could not be loaded. Please reload it.")


def check_session(browser, url, _):
    """Without the link's session id there is nothing to see, and the page says what to do."""
    page = Page(browser, url.partition("/#")[0] + "/")
    expect(page.page.locator("#banner")).to_contain_text("open the link that `weir ui` printed")
    assert all(url.startswith(page.origin + "/") for url in page.requests)


def check_run(browser, url, run):
    """A run of a real cluster, from the fleet to its cancellation."""
    page = Page(browser, url)
    link = page.page.locator(".legend a", has_text=run)
    expect(link).to_be_visible()
    link.click()
    expect(page.page.locator("h1")).to_have_text(run)
    expect(page.page.locator(".state").first).to_have_text("running")
    page.assert_drawn(r"loss [0-9]")
    expect(page.page.locator(".spec")).to_contain_text("microbatches: 2")
    expect(page.page.locator(".events")).to_contain_text("view")
    page.key("t")
    expect(page.page.locator(".plot-table tbody tr").first).to_be_visible()
    page.page.get_by_role("button", name="Cancel", exact=True).click()
    page.page.get_by_role("button", name="Cancel run").click()
    expect(page.page.locator(".state").first).to_have_text("cancelled")
    page.assert_well()


def check_sweep(browser, url, sweep):
    """A sweep of a real cluster, which has ended with two trials, is extended by keyboard and seen to go on."""
    page = Page(browser, url)
    page.key("4")
    expect(page.page.locator(".long tbody tr").first).to_contain_text(sweep)
    page.key("j", "Enter")
    expect(page.page.locator("h1")).to_have_text(sweep)
    expect(page.page.locator(".strip")).to_contain_text("2 of 2")
    expect(page.page.locator(".trial-line")).to_have_count(2)
    page.page.get_by_role("button", name="Extend", exact=True).focus()
    page.key("Enter")
    page.page.keyboard.type("4")
    page.key("Enter")
    expect(page.page.locator(".strip")).to_contain_text("4 of 4")
    expect(page.page.locator(".trial-line")).to_have_count(4)
    expect(page.page.locator(".state").first).to_have_text("done")
    page.assert_drawn(r"[0-9]")
    page.assert_well()


def make_shots(browser, url, folder):
    pages = {theme: Page(browser, url, theme, {}) for theme in ("light", "dark")}
    for view, theme in SHOTS.items():
        pages[theme].show(view)
        pages[theme].page.screenshot(path=os.path.join(folder, f"{view}.png"))


def main():
    url, chromium, check, more = (sys.argv[1:] + [""])[:4]
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        {"shots": make_shots}.get(check, globals().get(f"check_{check}"))(browser, url, more)
        browser.close()


if __name__ == "__main__":
    main()
