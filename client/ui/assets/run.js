/* A run: its curves over one line of steps, with what happened on the way. */
import {get} from "./api.js";
import {actOnRun, bar, fact, setPriority, stateMark, stepText, sweepLink, runLink} from "./cells.js";
import {swatch} from "./colours.js";
import {empty, h, keep, panel, say, setAttribute, setText} from "./dom.js";
import {NONE, age, count, duration, isOver, isShare, metric, number, percent, percentTick, short, tick} from "./format.js";
import {Lanes} from "./lanes.js";
import {Plot, zoomable} from "./plot.js";
import {RunSeries, smooth} from "./series.js";
import {yaml} from "./spec.js";
import {now, state} from "./store.js";

const REFRESH_MS = 2000;
const FACTS = [
  ["loss", "Loss"], ["objective", "Objective"], ["speed", "Samples/s"], ["left", "Time left"], ["workers", "Workers"],
  ["checkpoint", "Checkpoint"], ["incarnation", "Roll-backs"], ["age", "Submitted"]
];
const SMOOTHINGS = [["0", "As it is"], ["0.6", "Smooth"], ["0.9", "Smoother"], ["0.97", "Smoothest"]];
const SIDE_METRICS = ["samples_per_second", "lr", "workers"];
const SIDE_TITLES = {
  samples_per_second: "Samples a second",
  lr: "Learning rate",
  workers: "Workers"
};

function makeActions(run, row) {
  const buttons = Object.fromEntries(["pause", "resume", "stop", "cancel"].map(
      (name) =>
          [name,
           h("button", {
             type: "button",
             class: name === "cancel" ? "danger-text" : "",
             onclick: (event) => actOnRun(name, run, event.currentTarget)
           },
             name[0].toUpperCase() + name.slice(1))]));
  const priority =
      h("button", {type: "button", onclick: (event) => setPriority(run, row()?.priority, event.currentTarget)},
        "Priority");
  return {
    element: h("div", {class: "actions"}, priority, Object.values(buttons)),
    show(of) {
      const isLive = Boolean(of) && !isOver(of.state) && of.state !== "paused";
      buttons.pause.hidden = buttons.stop.hidden = !isLive;
      buttons.cancel.hidden = !of || isOver(of.state);
      buttons.resume.hidden = !of || !["paused", "failed", "cancelled"].includes(of.state);
      priority.hidden = !isLive;
    }
  };
}

function makeHead(run, row) {
  const mark = stateMark(), progress = bar(), message = h("p", {class: "run-says"}), actions = makeActions(run, row),
        links = h("span", {class: "run-links"});
  const select =
      h("label", {class: "check"}, h("input", {
          type: "checkbox",
          onchange: (event) => (event.target.checked ? state.selected.add(run) : state.selected.delete(run))
        }),
        "Compare");
  select.firstElementChild.checked = state.selected.has(run);
  return {
    element:
        h("header", {class: "run-head"},
          h("div", {class: "run-title"}, h("a", {href: "#/runs", class: "up"}, "Runs"), h("h1", {}, run), mark.element,
            links),
          select, actions.element, h("div", {class: "run-progress"}, progress.element), message),
    show(of) {
      mark.show(of?.state);
      progress.show(
          of?.steps ? (of.step ?? 0) / of.steps : 0,
          of ? `step ${stepText(of)}${of.epochs ? `, epoch ${(of.epoch ?? 0).toFixed(2)} of ${tick(of.epochs)}` : ""}` :
               "");
      setText(message, of?.message ?? of?.store_message ?? "");
      message.hidden = !message.textContent;
      setAttribute(message, "data-bad", of?.state === "failed" || of?.store_message ? "yes" : null);
      keep(
          links,
          [
            of?.parent && {text: `fork of ${of.parent}`, href: runLink(of.parent)},
            of?.sweep && {text: `trial ${of.trial ?? 0} of ${of.sweep}`, href: sweepLink(of.sweep)}
          ].filter(Boolean),
          (link) => link.href, (link) => h("a", {href: link.href}, link.text));
      actions.show(of);
    }
  };
}

const valuesOf = (row) => ({
  loss: number(row.loss ?? NaN),
  objective: row.objective ? metric(row.objective, row.objective_value ?? 0) : NONE,
  speed: row.state === "running" ? short(row.samples_per_second ?? 0) : NONE,
  left: row.seconds_left ? duration(row.seconds_left) : NONE,
  workers: row.workers ? `${count(row.workers)} (${count(row.executors ?? 0)} ex.)` : NONE,
  checkpoint: row.checkpoint_step !== undefined ? `step ${count(row.checkpoint_step)}` : NONE,
  incarnation: count(row.incarnation ?? 0),
  age: row.submitted_unix_ms ? `${age(row.submitted_unix_ms, now())} ago` : NONE,
});

function makeSide() {
  const hash = fact("weights_sha256", {isWide: true}), size = fact("Parameters"), blocks = fact("Blocks"),
        kept = fact("Checkpoints"), took = fact("Trained for"), tenant = fact("Owner"), priority = fact("Priority");
  hash.value.className = "hash";
  const text = h("pre", {class: "spec", tabindex: "0", "aria-label": "Spec"});
  const copy = h("button", {type: "button", class: "quiet small"}, "Copy");
  copy.addEventListener("click", () => navigator.clipboard.writeText(text.textContent).then(() => say("Copied")));
  return {
    element: [
      panel(
          "Result", null,
          h("dl", {class: "facts"}, hash.element, size.element, blocks.element, kept.element, took.element,
            tenant.element, priority.element)),
      panel("Spec", copy, text)
    ],
    show(info) {
      hash.show(info.weights_sha256 ?? "known when the run is done");
      setAttribute(hash.value, "data-none", info.weights_sha256 ? null : "yes");
      size.show(short(info.parameters ?? NaN));
      blocks.show(count(info.blocks ?? NaN));
      kept.show(count(info.checkpoints ?? 0));
      took.show(info.train_seconds ? duration(info.train_seconds) : NONE);
      tenant.show(info.tenant ?? NONE);
      priority.show(count(info.priority ?? 0));
      setText(text, info.spec ? yaml(info.spec) : "");
    }
  };
}

/** The evaluations' curves: what is not of each step. */
const evaluated =
    (series) => [...series.curves.keys()].filter((name) => name !== "loss" && !SIDE_METRICS.includes(name));

class RunView {
  constructor(root, run) {
    Object.assign(this, {
      run,
      title: run,
      info: {},
      series: new RunSeries(run),
      shared: {x: null},
      chosen: -1,
      smoothing: 0,
      isClosed: false
    });
    this.head = makeHead(run, () => state.runs.get(run));
    this.facts = FACTS.map(([name, label]) => ({name, ...fact(label)}));
    this.side = makeSide();
    const isLog = h("input", {type: "checkbox", onchange: () => this.loss.setLog(isLog.checked)});
    const smoothing =
        h("select", {
          "aria-label": "Smoothing",
          onchange: () => {
            this.smoothing = Number(smoothing.value);
            this.draw();
          }
        },
          SMOOTHINGS.map(([value, text]) => h("option", {value}, text)));
    this.all =
        h("button", {type: "button", class: "quiet small", hidden: true, onclick: () => this.zoom()}, "Show all steps");
    this.makePlots();
    this.trouble = h("div", {class: "empty", hidden: true});
    this.key = h("span", {class: "chart-key", hidden: true}, swatch(0), "of steps", swatch(1), "of evaluations");
    const loss = panel(
        "Loss", [this.key, this.all, smoothing, h("label", {class: "check"}, isLog, "Log")], this.loss.element,
        this.lanes.element);
    this.events = h("ol", {class: "events"});
    this.noEvents = empty("Views, faults, roll-backs and checkpoints appear here as they happen.");
    root.append(
        this.head.element, h("dl", {class: "strip"}, this.facts.map((one) => one.element)), this.trouble,
        h("div", {class: "run-grid"},
          h("div", {class: "column"}, loss, panel("Evaluations", null, this.evals.element),
            h("div", {class: "trio"},
              SIDE_METRICS.map((name) => panel(SIDE_TITLES[name], null, this.small[name].element)))),
          h("div", {class: "column"},
            panel(
                "Events", h("span", {class: "dim"}, h("kbd", {}, "["), " ", h("kbd", {}, "]")),
                h("div", {class: "scroll events-scroll"}, this.events, this.noEvents)),
            this.side.element)));
    this.tick();
  }

  makePlots() {
    const steps = {xName: "step", xPrecision: 0, xFormat: (x) => short(x), xTip: (x) => count(x), shared: this.shared};
    this.loss = new Plot({...steps, title: "Loss by step", height: 250});
    this.evals = new Plot({...steps, title: "Evaluations by step", height: 150});
    this.small = Object.fromEntries(SIDE_METRICS.map((name) => [name, new Plot({
                                                                  ...steps,
                                                                  title: `${SIDE_TITLES[name]} by step`,
                                                                  height: 110,
                                                                  ticks: 4,
                                                                  yFormat: name === "lr" ? number : short,
                                                                  yTick: name === "lr" ? tick : undefined,
                                                                  yMin: name === "workers" ? 0 : undefined,
                                                                  yPrecision: name === "workers" ? 0 : undefined
                                                                })]));
    this.lanes = new Lanes((index) => this.choose(index));
    for (const plot of this.plots()) zoomable(plot, (least, most) => this.zoom(least, most));
  }

  plots() { return [this.loss, this.evals, ...Object.values(this.small)]; }

  async tick() {
    const [info] =
        await Promise.all([get("run", {run: this.run}).catch((failure) => ({error: failure})), this.series.refresh()]);
    if (this.isClosed) return;
    if (info.error)
      this.showTrouble(info.error);
    else {
      this.info = info;
      this.trouble.hidden = true;
      this.side.show(info);
    }
    this.draw();
    this.timer = setTimeout(
        () => (document.hidden ? this.wait() : this.tick()), isOver(info.state) ? 5 * REFRESH_MS : REFRESH_MS);
  }

  /** A tab that nobody sees asks nothing. */
  wait() { this.timer = setTimeout(() => (document.hidden ? this.wait() : this.tick()), 500); }

  showTrouble(failure) {
    this.trouble.hidden = false;
    this.trouble.replaceChildren(h("p", {}, failure.message));
  }

  zoom(least, most) {
    this.all.hidden = least === undefined;
    for (const plot of this.plots()) plot.setRange(least, most);
    this.range = least === undefined ? null : [least, most];
    this.showLanes();
  }

  draw() {
    const {series} = this, loss = series.curve("loss");
    const fit = [0, Math.max(1, series.step)];
    for (const plot of this.plots())
      if (!this.range) Object.assign(plot.chart.options.scales.x, {min: fit[0], max: fit[1]});
    this.loss.draw(
        loss ?
            [
              {
                label: "loss",
                x: loss.steps,
                y: smooth(loss.mean, this.smoothing),
                low: loss.min,
                high: loss.max,
                tone: "accent"
              },
              ...(series.curve("eval_loss") ? [{
                label: "eval_loss",
                x: series.curve("eval_loss").steps,
                y: series.curve("eval_loss").mean,
                colour: 1,
                dash: [],
                isPoints: true,
                isJoined: true
              }] :
                                              [])
            ] :
            []);
    this.key.hidden = !series.curve("eval_loss");
    const shares = evaluated(series).filter((name) => name !== "eval_loss");
    const names = shares.length ? shares : evaluated(series);
    const areShares = names.length > 0 && names.every(isShare);
    this.evals.options.yFormat = areShares ? percent : number;
    this.evals.chart.options.scales.y.ticks.callback = areShares ? percentTick : tick;
    this.evals.draw(names.map((name, i) => ({
                                label: name,
                                x: series.curve(name).steps,
                                y: series.curve(name).mean,
                                colour: i,
                                dash: [],
                                isPoints: true,
                                isJoined: true
                              })));
    for (const [name, plot] of Object.entries(this.small)) {
      const curve = series.curve(name);
      plot.draw(
          curve ? [{
            label: name,
            x: curve.steps,
            y: curve.mean,
            low: curve.min,
            high: curve.max,
            tone: name === "samples_per_second" ? "accent" : "dim",
            isStep: name === "workers"
          }] :
                  []);
    }
    this.showEvents();
  }

  showEvents() {
    const {events} = this.series;
    this.noEvents.hidden = events.length > 0;
    keep(
        this.events, events.map((event, index) => ({event, index})).reverse(),
        ({event, index}) => `${index}:${event.kind}:${event.step}:${event.message}`,
        ({event, index}) => h(
            "li", {"data-kind": event.kind, onclick: () => this.choose(index)},
            h("span", {class: "event-step"}, count(event.step ?? 0)),
            h("span", {class: "event-kind"}, event.kind ?? ""), h("span", {class: "event-text"}, event.message ?? "")),
        (element, {index}) => setAttribute(element, "aria-current", index === this.chosen ? "true" : null));
    this.showLanes();
  }

  showLanes() {
    const {events} = this.series;
    const marks = events
                      .map(
                          (event, index) =>
                              ({x: event.step ?? 0, isBad: event.kind === "rollback", isChosen: index === this.chosen}))
                      .filter((mark) => mark.isBad || mark.isChosen);
    this.lanes.show(events, this.range ?? [0, Math.max(1, this.series.step)], this.chosen);
    for (const plot of this.plots()) plot.setMarks(marks);
  }

  choose(index) {
    const event = this.series.events[index];
    if (!event) return;
    this.chosen = index;
    this.showEvents();
    this.events.querySelector("[aria-current]")?.scrollIntoView({block: "nearest"});
    say(`${event.kind} at step ${event.step ?? 0}: ${event.message ?? ""}`);
  }

  /** by: 1 to the next event, -1 to the one before. */
  moveEvent(by) {
    const last = this.series.events.length - 1;
    this.choose(this.chosen < 0 ? (by > 0 ? 0 : last) : Math.min(last, Math.max(0, this.chosen + by)));
  }

  update() {
    const row = state.runs.get(this.run) ?? (this.info.run ? {...this.info} : null);
    this.head.show(row);
    if (!row) return;
    const values = valuesOf(row);
    for (const one of this.facts) one.show(values[one.name]);
    if (row.objective)
      setText(
          this.facts[1].element.firstElementChild,
          row.objective[0].toUpperCase() + row.objective.slice(1).replaceAll("_", " "));
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    for (const plot of this.plots()) plot.close();
  }
}

export function mount(root, route) { return new RunView(root, route.id); }
