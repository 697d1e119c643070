/* A run: its curves over one line of steps, with what happened on the way. */
import {get} from "./api.js";
import {fact} from "./cells.js";
import {Checkpoints} from "./checkpoints.js";
import {swatch} from "./colours.js";
import {h, panel, say, setAttribute, setText} from "./dom.js";
import {Events} from "./events.js";
import {NONE, age, count, duration, isOver, isShare, metric, number, percent, percentTick, plural, short, tick} from "./format.js";
import {Lanes} from "./lanes.js";
import {Plot, zoomable} from "./plot.js";
import {makeHead} from "./run_head.js";
import {RunSeries, SMOOTHINGS, smooth} from "./series.js";
import {yaml} from "./spec.js";
import {now, state} from "./store.js";

const REFRESH_MS = 2000;
const FACTS = [
  ["loss", "Loss"], ["objective", "Objective"], ["speed", "Samples/s"], ["left", "Time left"], ["workers", "Workers"],
  ["checkpoint", "Checkpoint"], ["incarnation", "Roll-backs"], ["age", "Submitted"]
];
const SIDE_METRICS = ["samples_per_second", "lr", "workers"];
const SIDE_TITLES = {
  samples_per_second: "Samples a second",
  lr: "Learning rate",
  workers: "Workers"
};

const valuesOf = (row) => ({
  loss: number(row.loss ?? NaN),
  objective: row.objective ? metric(row.objective, row.objective_value ?? 0) : NONE,
  speed: row.state === "running" ? short(row.samples_per_second ?? 0) : NONE,
  left: row.seconds_left ? duration(row.seconds_left) : NONE,
  workers: row.workers ? `${count(row.workers)} with ${plural(row.executors ?? 0, "executor")}` : NONE,
  checkpoint: row.checkpoint_step !== undefined ? `step ${count(row.checkpoint_step)}` : NONE,
  incarnation: count(row.incarnation ?? 0),
  age: row.submitted_unix_ms ? `${age(row.submitted_unix_ms, now())} ago` : NONE,
});

const DETAILS = [
  ["parameters", "Parameters", (info) => short(info.parameters ?? NaN)],
  ["blocks", "Blocks", (info) => count(info.blocks ?? NaN)],
  ["took", "Trained for", (info) => (info.train_seconds ? duration(info.train_seconds) : NONE)],
  ["samples", "Samples of an epoch", (info) => short(info.train_samples ?? NaN)],
  ["owner", "Owner", (info) => info.tenant ?? NONE], ["priority", "Priority", (info) => count(info.priority ?? 0)],
  ["hold", "Hold", (info) => (info.hold ? `step ${count(info.hold)}` : "none")],
  ["servers", "Servers", (info) => count(info.servers ?? NaN)]
];

function copyButton(what, text) {
  const button = h("button", {type: "button", class: "quiet small", "aria-label": `Copy the ${what}`}, "Copy");
  button.addEventListener("click", () => navigator.clipboard.writeText(text()).then(() => {
    say("Copied");
    setText(button, "Copied");
    setTimeout(() => setText(button, "Copy"), 1500);
  }));
  return button;
}

/** The hash, once there is one, then what does not change. */
function makeSide() {
  const hash = h("p", {class: "hash"}), details = DETAILS.map(([, label]) => fact(label));
  const text = h("pre", {class: "spec", tabindex: "0", "aria-label": "Spec"});
  const result = panel("weights_sha256", copyButton("hash", () => hash.textContent), hash);
  return {
    result,
    rest: [
      panel("Details", null, h("dl", {class: "facts"}, details.map((one) => one.element))),
      panel("Spec", copyButton("spec", () => text.textContent), text)
    ],
    show(info) {
      setText(hash, info.weights_sha256 ?? "");
      result.hidden = !info.weights_sha256;
      details.forEach((one, i) => one.show(DETAILS[i][2](info)));
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
    this.checkpoints = new Checkpoints(run);
    this.head = makeHead({run, info: () => this.info, checkpoints: this.checkpoints});
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
        "Loss by step", [this.key, this.all, smoothing, h("label", {class: "check"}, isLog, "Log")], this.loss.element,
        this.lanes.element);
    this.events = new Events((index) => this.choose(index), () => this.showEvents());
    root.append(
        this.head.element, h("dl", {class: "strip"}, this.facts.map((one) => one.element)), this.trouble,
        h("div", {class: "run-grid"},
          h("div", {class: "column"}, loss, panel("Evaluations by step", null, this.evals.element),
            h("div", {class: "trio"},
              SIDE_METRICS.map((name) => panel(SIDE_TITLES[name], null, this.small[name].element)))),
          h("div", {class: "column"}, this.side.result, panel("Events", this.events.head, this.events.element),
            panel("Checkpoints", this.checkpoints.sum, this.checkpoints.element), this.side.rest)));
    this.side.show({});
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
      await this.checkpoints.refresh(info);
      if (this.isClosed) return;
      this.update();
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
    for (const plot of this.plots())
      if (!this.range) plot.setFit(0, Math.max(1, series.step));
    this.loss.draw(
        loss ?
            [
              {
                label: "loss",
                x: loss.steps,
                y: smooth(loss.mean, loss.steps, this.smoothing * series.step),
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
    this.events.show(this.series.events, this.chosen);
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
    this.events.scrollToChosen();
    say(`${event.kind} at step ${event.step ?? 0}: ${event.message ?? ""}`);
  }

  /** by: 1 to the next event of those that are shown, -1 to the one before. */
  moveEvent(by) { this.choose(this.events.next(this.chosen, by)); }

  /** What the key does to the run; false: nothing. */
  press(key) { return this.head.press(key); }

  update() {
    const known = state.runs.get(this.run);
    const {hold, checkpoints, spec} = this.info,
                              row = known ? {...known, hold, checkpoints, spec} :
        this.info.run                     ? this.info :
                                            null;
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
