/* Up to twenty runs in one chart, and what their specs do not share. */
import {get} from "./api.js";
import {runLink, stateMark} from "./cells.js";
import {swatch} from "./colours.js";
import {empty, h, keep, panel, setAttribute, setText} from "./dom.js";
import {NONE, count, isOver, metric as shown, metricTick, number, plural, short} from "./format.js";
import {Plot, zoomable} from "./plot.js";
import {go} from "./route.js";
import {RunSeries, SMOOTHINGS, smooth} from "./series.js";
import {differences} from "./spec.js";
import {state} from "./store.js";

export const COMPARED_MAX = 20;
const REFRESH_MS = 3000;

function runsAsked(route) {
  const asked = (route.query.get("runs") ?? "").split(",").filter(Boolean);
  return (asked.length ? asked : [...state.selected]).slice(0, COMPARED_MAX);
}

class CompareView {
  constructor(root, runs) {
    Object.assign(this, {
      title: "Compare",
      runs,
      infos: new Map(),
      all: new Map(runs.map((run) => [run, new RunSeries(run)])),
      metric: "loss",
      smoothing: Number(SMOOTHINGS[1][0]),
      hidden: new Set()
    });
    this.choice = h("select", {
      "aria-label": "Metric",
      onchange: () => {
        this.metric = this.choice.value;
        this.draw();
      }
    });
    const smoothing =
        h("select", {
          "aria-label": "Smoothing",
          onchange: () => {
            this.smoothing = Number(smoothing.value);
            this.draw();
          }
        },
          SMOOTHINGS.map(([value, text], i) => h("option", {value, selected: i === 1}, text)));
    const isLog = h("input", {type: "checkbox", onchange: () => this.plot.setLog(isLog.checked)});
    this.whole =
        h("button", {type: "button", class: "quiet small", hidden: true, onclick: () => this.zoom()}, "Show all steps");
    this.plot = new Plot({
      title: "Runs compared",
      height: 320,
      xName: "step",
      xFormat: short,
      xPrecision: 0,
      xTip: count,
      yTip: (y) => shown(this.metric, y),
      yTick: (y) => metricTick(this.metric, y)
    });
    zoomable(this.plot, (least, most) => this.zoom(least, most));
    this.body = h("tbody", {});
    this.head = h("tr", {});
    this.keys = h("tbody", {});
    this.same = h("p", {class: "note"});
    root.append(
        h("div", {class: "column"},
          panel(
              `${plural(runs.length, "run")} by step`, [this.whole, this.choice, smoothing, h("label", {class: "check"}, isLog, "Log")],
              this.plot.element,
              h("div", {class: "scroll"},
                h("table", {class: "plain", "aria-label": "Runs compared"},
                  h("thead", {},
                    h("tr", {},
                      ["", "Run", "State", "Step", "Loss", "Objective", "Best of the curve", ""].map(
                          (title, i) => h("th", {scope: "col", class: i > 2 && i < 7 ? "end" : i ? "" : "tight"}, title)))),
                  this.body))),
          panel(
              "Keys of the specs that differ", null,
              h("div", {class: "scroll"},
                h("table", {class: "plain diff", "aria-label": "Keys that differ"}, h("thead", {}, this.head),
                  this.keys)),
              this.same)));
    this.tick();
  }

  async tick() {
    await Promise.all(this.runs.map(async (run) => {
      const info = this.infos.get(run);
      if (info && isOver(info.state) && this.all.get(run).isLoaded) return;
      const [fresh] = await Promise.all([get("run", {run}).catch(() => null), this.all.get(run).refresh()]);
      this.infos.set(run, fresh ?? info ?? {});
      if (this.isClosed) return;
      this.draw();
      this.drawKeys();
    }));
    if (this.isClosed) return;
    this.timer = setTimeout(() => this.tick(), REFRESH_MS);
  }

  zoom(least, most) {
    this.whole.hidden = least === undefined;
    this.plot.setRange(least, most);
    if (least === undefined) this.draw();
  }

  draw() {
    const metrics = [...new Set([...this.all.values()].flatMap((series) => [...series.curves.keys()]))];
    keep(this.choice, metrics, (name) => name, (name) => h("option", {value: name}, name));
    if (metrics.includes(this.metric)) this.choice.value = this.metric;
    const end = Math.max(1, ...[...this.all.values()].map((series) => series.step));
    this.curves = this.runs.map((run, i) => {
      const curve = this.all.get(run).curve(this.metric) ?? {steps: [], mean: []};
      return {
        run,
        label: run,
        x: curve.steps,
        raw: curve.mean,
        y: smooth(curve.mean, curve.steps, this.metric === "loss" ? this.smoothing * end : 0),
        colour: i
      };
    });
    if (this.whole.hidden) this.plot.setFit(0, end);
    this.plot.draw(this.curves.filter(({run}) => !this.hidden.has(run)));
    this.update();
  }

  /** The lowest loss, the highest of other metrics. */
  best(curve) {
    const values = (curve?.raw ?? []).filter(Number.isFinite);
    return values.length ?
        (/loss|perplexity|error|mse|mae/.test(this.metric) ? Math.min(...values) : Math.max(...values)) :
        NaN;
  }

  update() {
    const marks = this.marks ?? (this.marks = new WeakMap());
    const bests = (this.curves ?? []).map((curve) => this.best(curve)),
          least = /loss|perplexity|error|mse|mae/.test(this.metric);
    const winner = bests.length ? (least ? Math.min : Math.max)(...bests.filter(Number.isFinite)) : NaN;
    keep(
        this.body, this.runs.map((run, i) => ({run, i})), ({run}) => run,
        ({run, i}) => {
          const mark = stateMark(), box = h("input", {
                                      type: "checkbox",
                                      checked: true,
                                      "aria-label": `Show ${run}`,
                                      onchange: () => {
                                        if (box.checked)
                                          this.hidden.delete(run);
                                        else
                                          this.hidden.add(run);
                                        this.draw();
                                      }
                                    });
          const row =
              h("tr", {}, h("td", {class: "tight"}, h("label", {class: "check"}, box, swatch(i))),
                h("td", {}, h("a", {class: "run-name", href: runLink(run)}, run)), h("td", {}, mark.element),
                ["", "", "", ""].map(() => h("td", {class: "end"})),
                h("td", {class: "end"},
                  h("button", {
                    type: "button",
                    class: "quiet icon",
                    "aria-label": `Leave out ${run}`,
                    onclick: () => this.leaveOut(run)
                  },
                    "×")));
          marks.set(row, mark);
          return row;
        },
        (row, {run, i}) => {
          const of = state.runs.get(run) ?? this.infos.get(run) ?? {};
          marks.get(row).show(of.state);
          setText(row.children[3], count(of.step ?? 0));
          setText(row.children[4], number(of.loss ?? NaN));
          setText(
              row.children[5],
              of.objective ? `${of.objective.replaceAll("_", " ")} ${shown(of.objective, of.objective_value ?? 0)}` :
                             NONE);
          setText(row.children[6], shown(this.metric, bests[i]));
          setAttribute(row.children[6], "data-best", bests[i] === winner ? "yes" : null);
        });
  }

  leaveOut(run) {
    state.selected.delete(run);
    go(`#/compare?runs=${this.runs.filter((one) => one !== run).map(encodeURIComponent).join(",")}`);
  }

  drawKeys() {
    if (this.infos.size < this.runs.length) return;
    const rows =
        differences(this.runs.map((run) => this.infos.get(run)?.spec ?? {})).filter(({path}) => path !== "name");
    this.head.replaceChildren(
        h("th", {scope: "col"}, "Key"), ...this.runs.map((run, i) => h("th", {scope: "col"}, swatch(i), " ", run)));
    keep(
        this.keys, rows, ({path, values}) => `${path}=${values.join("\n")}`,
        ({path, values}) =>
            h("tr", {}, h("th", {scope: "row"}, path),
              values.map((value) => h("td", {class: value === null ? "dim" : ""}, value ?? "not given"))));
    setText(this.same, rows.length ? "All other keys are the same." : "Their specs are the same.");
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.plot.close();
  }
}

export function mount(root, route) {
  const runs = runsAsked(route);
  if (runs.length >= 1) return new CompareView(root, runs);
  root.append(
      h("section", {class: "panel"},
        empty(
            "Nothing is selected. In Runs, x selects the run under the cursor and c compares what is selected.",
            "weir runs")));
  return {title: "Compare", update() {}, close() {}};
}
