/* Parallel coordinates: a line a trial over its values and its result, with a brush on each axis. */
import {h, s, setAttribute} from "./dom.js";
import {metric, number} from "./format.js";
import {shortPath} from "./sweep_data.js";

const HEIGHT = 290, TOP = 40, BOTTOM = 26, SIDE = 74;

/** Where a value is on an axis, from 0 at the bottom to 1; NaN: it has none. */
function placeOf(axis, value) {
  if (value === undefined || value === null) return NaN;
  if (axis.choices) {
    const at = axis.choices.indexOf(String(value));
    return at < 0 ? NaN : axis.choices.length === 1 ? 0.5 : at / (axis.choices.length - 1);
  }
  const [v, low, high] = axis.isLog ? [Math.log(Number(value)), Math.log(axis.low), Math.log(axis.high)] :
                                      [Number(value), axis.low, axis.high];
  return high === low ? 0.5 : (v - low) / (high - low);
}

export class Parallel {
  /** onBrush() is called when what is brushed has changed; open(trial) when a line is clicked. */
  constructor(data, onBrush, open) {
    Object.assign(this, {data, onBrush, open, brushes: new Map(), axes: []});
    this.svg = s("svg", {
      class: "parallel",
      height: HEIGHT,
      role: "group",
      "aria-label": "Parallel coordinates: drag along an axis to keep trials of that range"
    });
    this.lines = s("g", {});
    this.axesGroup = s("g", {});
    this.svg.append(this.lines, this.axesGroup);
    this.element = h("div", {class: "parallel-frame"}, this.svg);
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this.element);
  }

  close() { this.sizes.disconnect(); }

  resultAxis() {
    const results = this.data.trials.map((trial) => this.data.result(trial)).filter(Number.isFinite);
    return {
      path: this.data.objective.metric,
      isResult: true,
      low: results.length ? Math.min(...results) : 0,
      high: results.length ? Math.max(...results) : 1
    };
  }

  valueOn(axis, trial) { return axis.isResult ? this.data.result(trial) : this.data.value(trial, axis.path); }

  /** Whether a trial is within all brushes. */
  keeps(trial) {
    return [...this.brushes].every(([path, [from, to]]) => {
      const axis = this.axes.find((one) => one.path === path),
            at = axis ? placeOf(axis, this.valueOn(axis, trial)) : NaN;
      return at >= from - 1e-9 && at <= to + 1e-9;
    });
  }

  x(i) {
    return SIDE + (this.axes.length < 2 ? 0 : (i / (this.axes.length - 1)) * (this.element.clientWidth - 2 * SIDE));
  }

  y(at) { return TOP + (1 - at) * (HEIGHT - TOP - BOTTOM); }

  at(event) {
    const y = event.clientY - this.svg.getBoundingClientRect().top;
    return Math.min(1, Math.max(0, 1 - (y - TOP) / (HEIGHT - TOP - BOTTOM)));
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width) return;
    setAttribute(this.svg, "width", width);
    this.axes = [...this.data.dimensions, this.resultAxis()];
    this.drawLines();
    if (this.drawnAxes !== this.axesKey()) this.drawAxes();
  }

  axesKey() { return JSON.stringify([this.element.clientWidth, this.axes, [...this.brushes]]); }

  drawLines() {
    const result = this.axes[this.axes.length - 1], best = this.data.info.has_best ? this.data.info.best ?? 0 : -1;
    const lines = this.data.trials.filter(Boolean)
                      .map((trial) => {
                        const at = placeOf(result, this.data.result(trial)),
                              rank = this.data.objective.isMin ? 1 - at : at;
                        return {
                          trial,
                          isKept: this.keeps(trial),
                          isBest: (trial.number ?? 0) === best,
                          rank: Number.isFinite(rank) ? rank : 0
                        };
                      })
                      .sort((a, b) => Number(a.isKept) - Number(b.isKept) || a.rank - b.rank);
    this.lines.replaceChildren(...lines.map(({trial, isKept, isBest, rank}) => {
      const points = this.axes.map((axis, i) => [this.x(i), placeOf(axis, this.valueOn(axis, trial))])
                         .filter(([, at]) => Number.isFinite(at));
      const path =
          s("path", {
            class: "trial-line",
            "data-kept": isKept ? "yes" : "no",
            "data-best": isBest ? "yes" : null,
            d: points.map(([x, at], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${this.y(at).toFixed(1)}`).join("")
          },
            s("title", {}, `trial ${trial.number ?? 0}: ${number(this.data.result(trial) ?? NaN)}`));
      path.style.opacity = isBest && isKept ? 1 : isKept ? 0.35 + 0.5 * rank : 0.1;
      if (isKept)
        path.style.stroke = `color-mix(in oklab, var(--accent) ${Math.round(100 * rank ** 1.5)}%, var(--mark))`;
      path.addEventListener("click", () => this.open(trial));
      return path;
    }));
  }

  drawAxes() {
    this.drawnAxes = this.axesKey();
    this.axesGroup.replaceChildren(...this.axes.map((axis, i) => this.makeAxis(axis, i)));
  }

  makeAxis(axis, i) {
    const x = this.x(i), brush = this.brushes.get(axis.path);
    const ends = [TOP - 9, HEIGHT - BOTTOM + 16], last = (axis.choices?.length ?? 0) - 1;
    const text = (value, more) => s("text", {class: "axis-value", ...more}, value);
    const end = (value, k) => text(value, {x, y: ends[k], "text-anchor": "middle"});
    const beside = (value, at) => text(value, {x: x + 9, y: this.y(at) + 3.5});
    const shown = (value) => (axis.isResult ? metric(axis.path, value) : number(Number(value)));
    const ticks = axis.choices ? axis.choices.map(
                                     (choice, k) =>
                                         (last === 0     ? beside(choice, 0.5) :
                                              k === last ? end(choice, 0) :
                                              k === 0    ? end(choice, 1) :
                                                           beside(choice, k / last))) :
                                 [end(shown(axis.high), 0), end(shown(axis.low), 1)];
    const grab = s("rect", {
      class: "axis-grab",
      x: x - 14,
      y: TOP - 4,
      width: 28,
      height: HEIGHT - TOP - BOTTOM + 8,
      tabindex: "0",
      role: "slider",
      "aria-label": `${axis.path}: up and down move a brush, Delete removes it`,
      "aria-valuenow": brush ? Math.round(50 * (brush[0] + brush[1])) : 50,
      "aria-valuetext": brush ? `${Math.round(100 * brush[0])} to ${Math.round(100 * brush[1])} percent of the axis` :
                                "all"
    });
    this.listen(grab, axis);
    return s(
        "g", {"data-axis": axis.path}, s("line", {class: "axis", x1: x, x2: x, y1: this.y(1), y2: this.y(0)}),
        s("text", {class: axis.isResult ? "axis-name result" : "axis-name", x, y: 14, "text-anchor": "middle"},
          shortPath(axis.path), s("title", {}, axis.path)),
        ...ticks,
        brush ? s("rect", {
          class: "brush",
          x: x - 7,
          width: 14,
          y: this.y(brush[1]),
          height: Math.max(2, this.y(brush[0]) - this.y(brush[1])),
          rx: 3
        }) :
                "",
        grab);
  }

  setBrush(axis, range) {
    if (range)
      this.brushes.set(axis.path, range);
    else
      this.brushes.delete(axis.path);
    this.drawLines();
    const focused = document.activeElement?.closest?.("[data-axis]")?.getAttribute("data-axis");
    this.drawAxes();
    if (focused)
      [...this.axesGroup.children]
          .find((group) => group.getAttribute("data-axis") === focused)
          ?.querySelector(".axis-grab")
          .focus();
    this.onBrush();
  }

  listen(grab, axis) {
    grab.addEventListener("pointerdown", (event) => {
      const from = this.at(event);
      event.preventDefault();
      const move = (to) => this.setBrush(axis, [Math.min(from, this.at(to)), Math.max(from, this.at(to))]);
      const up = (end) => {
        removeEventListener("pointermove", move);
        removeEventListener("pointerup", up);
        if (Math.abs(this.at(end) - from) < 0.02) this.setBrush(axis, null);
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", up);
    });
    grab.addEventListener("keydown", (event) => {
      const [from, to] = this.brushes.get(axis.path) ?? [0, 0.25], by = event.key === "ArrowUp" ? 0.125 : -0.125;
      if (event.key === "Delete" || event.key === "Backspace")
        this.setBrush(axis, null);
      else if (event.key !== "ArrowUp" && event.key !== "ArrowDown")
        return;
      else if (!this.brushes.has(axis.path))
        this.setBrush(axis, by > 0 ? [0.75, 1] : [0, 0.25]);
      else if (from + by >= -1e-9 && to + by <= 1 + 1e-9)
        this.setBrush(axis, [from + by, to + by]);
      event.preventDefault();
      event.stopPropagation();
    });
  }
}
