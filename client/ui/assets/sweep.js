/* A sweep: the best so far, all trials at once, how they came along. */
import {extendSweep, stopSweep} from "./actions.js";
import {fact, partColumn, runLink, stateMark} from "./cells.js";
import {showCommands} from "./dialog.js";
import {h, panel, setAttribute, setText} from "./dom.js";
import {NONE, age, count, duration, metric, metricTick, number} from "./format.js";
import {drawLineage, makeRungs} from "./lineage.js";
import {Parallel} from "./parallel.js";
import {Plot} from "./plot.js";
import {go} from "./route.js";
import {now, state} from "./store.js";
import {SweepData, shortPath} from "./sweep_data.js";
import {LongTable, textColumn} from "./table.js";

const REFRESH_MS = 2000, COMPARED = 5;
const FACTS = [
  ["best", "Best"], ["trials", "Trials"], ["running", "Running"], ["failed", "Failed"], ["begun", "Begun"],
  ["searcher", "Searcher"], ["scheduler", "Scheduler"], ["since", "Since"]
];

function trialColumns(data) {
  const name = () => data.objective.metric;
  return [
    partColumn(
        "number", "Trial",
        () => {
          const link = h("a", {class: "run-name"});
          return {
            element: link,
            show(trial) {
              setText(link, `trial ${trial.number ?? 0}`);
              setAttribute(link, "href", trial.run ? runLink(trial.run) : null);
            }
          };
        },
        {width: "92px", sort: (trial) => trial.number ?? 0}),
    partColumn(
        "state", "State",
        () => {
          const mark = stateMark();
          return {element: mark.element, show: (trial) => mark.show(trial.state)};
        },
        {width: "108px", sort: (trial) => trial.state}),
    textColumn(
        "result", name(), (trial) => metric(name(), data.result(trial) ?? NaN),
        {width: "96px", align: "end", sort: (trial) => data.result(trial)}),
    textColumn(
        "rung", "Rung",
        (trial) => (trial.results?.length ? count(data.rungs[trial.results.length - 1] ?? trial.results.length) : NONE),
        {width: "72px", align: "end", sort: (trial) => trial.results?.length ?? 0}),
    ...data.dimensions.map(
        (axis) => textColumn(
            axis.path, shortPath(axis.path),
            (trial) => {
              const value = data.value(trial, axis.path);
              return value === undefined ? NONE : axis.choices ? value : number(Number(value));
            },
            {
              align: "end",
              sort: (trial) => (axis.choices ? data.value(trial, axis.path) : Number(data.value(trial, axis.path)))
            })),
    textColumn(
        "why", "", (trial) => trial.failure ?? (trial.has_parent ? `fork of trial ${trial.parent ?? 0}` : ""),
        {sort: undefined}),
  ];
}

class SweepView {
  constructor(root, sweep) {
    Object.assign(this, {root, sweep, title: sweep, data: new SweepData(sweep)});
    this.mark = stateMark();
    this.message = h("p", {class: "run-says"});
    const button = (text, act, more = {}) => h("button", {type: "button", hidden: true, onclick: act, ...more}, text);
    this.stop = button("Stop sweep", () => stopSweep(sweep, this.stop), {class: "danger-text"});
    this.extend = button("Extend", async () => {
      if (await extendSweep(sweep, this.data.info.spec ?? {}, this.extend)) await this.data.refresh();
    });
    this.save = button(
        "Export the best", () => showCommands({
                             title: "Export the best trial",
                             text: "Its weights in the submitted model, and the spec that they come from:",
                             commands: [`weir sweep export ${sweep} -o ${sweep}.onnx`, `weir sweep best ${sweep}`]
                           }));
    this.compare = button(`Compare the best ${COMPARED}`, () => this.compareBest(), {class: "quiet small"});
    this.facts = FACTS.map(([name, label]) => ({name, ...fact(label)}));
    this.plot = new Plot({
      title: "Best so far",
      height: 220,
      xName: "trial",
      xFormat: (x) => count(Math.round(x)),
      xPrecision: 0,
      yFormat: (y) => metric(this.data.objective.metric, y),
      yTick: (y) => metricTick(this.data.objective.metric, y)
    });
    this.parallel = new Parallel(this.data, () => this.showTrials(), (trial) => trial.run && go(runLink(trial.run)));
    this.rungs = makeRungs();
    this.lineage = h("div", {class: "scroll lineage-frame"});
    this.clear = h("button", {type: "button", class: "quiet small", hidden: true}, "Remove brushes");
    this.clear.addEventListener("click", () => this.removeBrushes());
    this.sum = h("span", {class: "dim"});
    this.trials = h("div", {});
    this.rungPanel = panel("Rungs", null, h("div", {class: "scroll"}, this.rungs.element));
    this.lineagePanel = panel("Forks", null, this.lineage);
    root.append(
        h("header", {class: "run-head"},
          h("div", {class: "run-title"}, h("a", {href: "#/sweeps", class: "up"}, "Sweeps"), h("h1", {}, sweep),
            this.mark.element),
          h("div", {class: "actions"}, this.save, this.extend, this.stop), this.message),
        h("dl", {class: "strip"}, this.facts.map((one) => one.element)),
        h("div", {class: "sweep-grid"}, panel("Best so far, by trial", null, this.plot.element), this.rungPanel,
          this.lineagePanel),
        panel(
            "All trials at once", [h("span", {class: "dim"}, "drag along an axis to keep a part of it"), this.clear],
            this.parallel.element),
        h("section", {class: "panel", "aria-label": "Trials"},
          h("header", {class: "panel-head"}, h("h2", {}, "Trials"),
            h("div", {class: "panel-more"}, this.compare, this.sum)),
          this.trials));
    this.tick();
  }

  async tick() {
    try {
      await this.data.refresh();
      if (this.isClosed) return;
      this.draw();
    } catch (failure) {
      if (this.isClosed) return;
      setText(this.message, failure.message);
    }
    const again = () => (document.hidden ? (this.timer = setTimeout(again, 500)) : this.tick());
    this.timer = setTimeout(again, this.data.info.end ? 5 * REFRESH_MS : REFRESH_MS);
  }

  draw() {
    const {data} = this, {info} = data, name = data.objective.metric, {spec = {}} = info;
    this.mark.show(info.end ? "done" : "running");
    setText(this.message, info.end ?? info.message ?? "");
    this.message.hidden = !this.message.textContent;
    this.stop.hidden = Boolean(info.end);
    this.extend.hidden = !spec.budget;
    this.save.hidden = !info.has_best;
    const values = {
      best: info.has_best ? `${metric(name, info.best_value ?? 0)} (trial ${info.best ?? 0})` : NONE,
      trials: data.size,
      running: count(info.running ?? 0),
      failed: count(info.failed ?? 0),
      begun: data.begun || NONE,
      searcher: spec.search?.name ?? "random",
      scheduler: spec.schedule?.name ?? "none",
      since: info.seconds ? duration(info.seconds) : age(info.submitted_unix_ms, now())
    };
    for (const one of this.facts) one.show(values[one.name]);
    this.drawBest();
    this.parallel.draw();
    const hasForks = data.trials.some((trial) => trial?.has_parent);
    this.rungPanel.hidden = hasForks;
    this.lineagePanel.hidden = !hasForks;
    if (hasForks)
      this.lineage.replaceChildren(
          drawLineage(data, this.lineage.clientWidth || 480, (trial) => trial.run && go(runLink(trial.run))));
    else
      this.rungs.show(data);
    this.showTrials();
  }

  drawBest() {
    const x = [], each = [], best = [];
    let so;
    for (const trial of this.data.trials.filter(Boolean)) {
      const result = this.data.result(trial);
      if (result === undefined) continue;
      if (this.data.beats(result, so)) so = result;
      x.push(trial.number ?? 0);
      each.push(result);
      best.push(so);
    }
    this.plot.draw(
        x.length ?
            [
              {label: "best so far", x, y: best, tone: "accent", isStep: true, width: 2},
              {label: "trial", x, y: each, tone: "dim", isPoints: true}
            ] :
            []);
  }

  /** The table is made when the space is known, and once. */
  showTrials() {
    const {data} = this;
    if (!this.table) {
      this.table = new LongTable(trialColumns(data), {
        label: "Trials",
        key: (trial) => String(trial.number ?? 0),
        open: (trial) => trial.run && go(runLink(trial.run)),
        sorted: {column: "result", isDown: !data.objective.isMin},
        describe: (trial) => `trial ${trial.number ?? 0}, ${number(data.result(trial) ?? NaN)}`,
        isSelected: (trial) => state.selected.has(trial.run),
        onSelect: (trial, isSelected) => (isSelected ? state.selected.add(trial.run) : state.selected.delete(trial.run))
      });
      this.trials.append(this.table.element);
    }
    const all = data.trials.filter(Boolean), shown = all.filter((trial) => this.parallel.keeps(trial));
    this.compare.hidden = this.ranked().length < 2;
    this.clear.hidden = this.parallel.brushes.size === 0;
    setText(
        this.sum,
        shown.length === all.length ? `${count(all.length)}` :
                                      `${count(shown.length)} of ${count(all.length)} within the brushes`);
    this.table.show(shown);
  }

  removeBrushes() {
    this.parallel.brushes.clear();
    this.parallel.draw();
    this.showTrials();
  }

  /** Of those within the brushes. */
  ranked() {
    return this.data.trials
        .filter((trial) => trial?.run && this.data.result(trial) !== undefined && this.parallel.keeps(trial))
        .sort((a, b) => (this.data.beats(this.data.result(a), this.data.result(b)) ? -1 : 1));
  }

  compareBest() {
    const runs = this.ranked().slice(0, COMPARED).map((trial) => encodeURIComponent(trial.run));
    go(`#/compare?runs=${runs.join(",")}`);
  }

  update() {}

  /** Esc: true where there was something to take back. */
  back() {
    if (!this.parallel.brushes.size) return false;
    this.removeBrushes();
    return true;
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.plot.close();
    this.parallel.close();
    this.table?.close();
  }
}

export const mount = (root, route) => new SweepView(root, route.id);
