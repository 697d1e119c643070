/* Charts, drawn by Chart.js: curves with the band between their minima and maxima, marks of events, a table in place of the
   picture. */
import {colour, curveColour, curveDash, onTheme} from "./colours.js";
import {h, keep, setAttribute, setText} from "./dom.js";
import {number, tick} from "./format.js";

/* global Chart */
const AXIS_WIDTH = 84, RIGHT = 14, TABLE_ROWS = 200;
const FONT = "Inter, system-ui, -apple-system, \"Segoe UI\", Roboto, \"Noto Sans\", sans-serif";

/** Where a plot draws, for what is aligned with it. */
export const PLOT_LEFT = AXIS_WIDTH, PLOT_RIGHT = RIGHT;

const plots = new Set();
let showsTables = false;

/** All charts of the view as tables, or as charts again. */
export function switchTables() {
  showsTables = !showsTables;
  for (const plot of plots) plot.showTable(showsTables);
  return showsTables;
}

/** Vertical marks at x, and the line under the pointer, which plots with the same `shared` have together. */
function marksPlugin(plot) {
  return {
    id: "marks",
    afterDatasetsDraw(chart) {
      const {ctx, chartArea: area, scales: {x}} = chart;
      const line = (at, colourOf, dash, width) => {
        const px = x.getPixelForValue(at);
        if (px < area.left - 1 || px > area.right + 1) return;
        ctx.strokeStyle = colourOf;
        ctx.lineWidth = width;
        ctx.setLineDash(dash);
        ctx.beginPath();
        ctx.moveTo(px, area.top);
        ctx.lineTo(px, area.bottom);
        ctx.stroke();
      };
      ctx.save();
      for (const mark of plot.marks)
        line(
            mark.x,
            colour(
                mark.isChosen  ? "accent" :
                    mark.isBad ? "bad" :
                                 "mark"),
            mark.isChosen ? [] : [3, 3], mark.isChosen ? 2 : 1);
      if (plot.shared.x !== null) line(plot.shared.x, colour("dim"), [], 1);
      ctx.restore();
    },
    afterEvent(chart, {event}) {
      const at = event.type === "mouseout" ? null : chart.tooltip?.dataPoints?.[0]?.parsed.x ?? null;
      if (at === plot.shared.x) return;
      plot.shared.x = at;
      for (const other of plots)
        if (other.shared === plot.shared && other !== plot) other.chart.draw();
    },
  };
}

function axis(text, options) {
  return {
    type: options.isLog ? "logarithmic" : "linear",
    stacked: options.isStacked,
    min: options.min,
    max: options.max,
    grid: {color: colour("grid"), drawBorder: false, tickLength: 4, display: options.hasGrid ?? true},
    ticks: {
      color: colour("dim"),
      font: {family: FONT, size: 11},
      maxTicksLimit: options.ticks ?? 6,
      maxRotation: 0,
      padding: 4,
      autoSkipPadding: 24,
      callback: options.format ?? tick,
      includeBounds: false,
      precision: options.precision
    },
    title: {
      display: Boolean(text),
      text,
      color: colour("dim"),
      font: {family: FONT, size: 11},
      padding: {top: 0, bottom: 0}
    },
  };
}

function configuration(plot) {
  const {options} = plot, x = axis(options.xTitle, {
                            ticks: 8,
                            format: options.xFormat,
                            precision: options.xPrecision,
                            hasGrid: false,
                            min: options.xMin,
                            max: options.xMax
                          });
  const y = axis("", {
    isLog: plot.isLog,
    isStacked: options.isStacked,
    format: options.yTick ?? options.yFormat,
    ticks: 5,
    min: options.yMin,
    precision: options.yPrecision
  });
  y.afterFit = (scale) => {
    scale.width = options.axisWidth ?? AXIS_WIDTH;
  };
  return {
    type: "line",
    data: {datasets: []},
    plugins: [marksPlugin(plot)],
    options: {
      animation: false,
      responsive: true,
      maintainAspectRatio: false,
      parsing: false,
      normalized: true,
      layout: {padding: {right: RIGHT, top: 6}},
      interaction: {mode: "index", intersect: false, axis: "x"},
      events: ["mousemove", "mouseout", "touchstart", "touchmove"],
      scales: {x, y},
      elements: {point: {radius: 0, hoverRadius: 3, hitRadius: 6}, line: {borderWidth: 1.6, tension: 0}},
      plugins: {
        legend: {display: false},
        filler: {propagate: false},
        tooltip: {
          mode: options.isStacked ? "index" : "nearest",
          intersect: false,
          axis: "x",
          backgroundColor: colour("tip"),
          titleColor: colour("tip-text"),
          bodyColor: colour("tip-text"),
          bodyFont: {family: FONT, size: 12},
          titleFont: {family: FONT, size: 11, weight: "500"},
          padding: 8,
          cornerRadius: 6,
          boxWidth: 8,
          boxHeight: 8,
          boxPadding: 4,
          animation: false,
          itemSort: (a, b) => b.parsed.y - a.parsed.y,
          filter: (item) => !item.dataset.isBand && (!options.isStacked || item.parsed.y > 0),
          callbacks: {
            title: (items) =>
                (items.length ?
                     `${options.xName ?? ""} ${(options.xTip ?? options.xFormat ?? number)(items[0].parsed.x)}`.trim() :
                     ""),
            label: (item) => `${item.dataset.label}  ${(options.yTip ?? options.yFormat ?? number)(item.parsed.y)}`,
          },
        },
      },
    },
  };
}

const pairs = (xs, ys) => xs.map((x, i) => ({x, y: ys[i] ?? NaN}));

/** A curve as Chart.js' datasets: the band first, so that the line is above it. */
function datasetsOf(curve, plot) {
  const tone = curve.tone ? colour(curve.tone) : curveColour(curve.colour), {isStacked} = plot.options;
  const line = {
    label: curve.label,
    data: pairs(curve.x, curve.y),
    borderColor: tone,
    backgroundColor: curve.isPoints ? tone : tone + "2e",
    borderDash: curve.dash ?? (curve.tone ? [] : curveDash(curve.colour)),
    fill: isStacked && !curve.isLimit ? (curve.isFirst ? "origin" : "-1") : false,
    stepped: curve.isStep ? "before" : false,
    pointRadius: curve.isPoints ? 2.5 : 0,
    showLine: !curve.isPoints || Boolean(curve.isJoined),
    stack: curve.isLimit ? "limit" : "all",
    spanGaps: true,
    borderWidth: curve.width ?? (isStacked ? 1 : 1.6),
    order: curve.isLimit ? -1 : 0,
  };
  if (isStacked && !curve.isLimit) Object.assign(line, {backgroundColor: tone + "b8", borderColor: colour("panel")});
  if (!curve.low?.length) return [line];
  const edge = {
    borderWidth: 0,
    pointRadius: 0,
    pointHoverRadius: 0,
    isBand: true,
    label: "",
    backgroundColor: tone + "26",
    order: 5
  };
  return [
    line, {...edge, data: pairs(curve.x, curve.low), fill: "+1"},
    {...edge, data: pairs(curve.x, curve.high), fill: false}
  ];
}

/** Rows of a table that says the same: at most TABLE_ROWS x, from all curves. */
function tableRows(curves) {
  const xs = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const stride = Math.ceil(xs.length / TABLE_ROWS) || 1;
  const values = curves.map((curve) => new Map(curve.x.map((x, i) => [x, curve.y[i]])));
  return xs.filter((_, i) => i % stride === 0 || i === xs.length - 1).map((x) => [x, values.map((of) => of.get(x))]);
}

export class Plot {
  /** options: title, height, xTitle, xName, xFormat, yFormat, yMin, isStacked, shared: {x: null} of several plots. */
  constructor(options) {
    this.options = options;
    this.marks = [];
    this.curves = [];
    this.shared = options.shared ?? {x: null};
    this.isLog = options.isLog ?? false;
    this.canvas = h("canvas", {role: "img"});
    this.frame = h("div", {class: "plot-frame", style: {height: `${options.height}px`}}, this.canvas);
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.table =
        h("div", {class: "plot-table", tabindex: "0", hidden: true, style: {"max-height": `${options.height}px`}},
          h("table", {}, h("thead", {}, this.head), this.body));
    this.element = h("figure", {class: "plot", "aria-label": options.title}, this.frame, this.table);
    this.chart = new Chart(this.canvas, configuration(this));
    this.offTheme = onTheme(() => this.restyle());
    plots.add(this);
    this.showTable(showsTables);
  }

  restyle() {
    this.chart.options = configuration(this).options;
    this.draw(this.curves);
  }

  setLog(isLog) {
    this.isLog = isLog;
    this.restyle();
  }

  /** curves: {label, x, y, low, high, colour or tone, isPoints, isStep}. */
  draw(curves) {
    this.curves = curves;
    this.fitAxis(curves);
    this.chart.data.datasets = curves.flatMap((curve, i) => datasetsOf({...curve, isFirst: i === 0}, this));
    this.chart.update("none");
    setAttribute(
        this.canvas, "aria-label",
        `${this.options.title}: ${
            curves
                .map((curve) => {
                  const last = curve.y[curve.y.length - 1];
                  return `${curve.label} ${(this.options.yFormat ?? number)(last)}`;
                })
                .join(", ") ||
            "no values yet"}`);
    if (showsTables) this.fillTable();
  }

  /** A line of one value, or of none, would have an axis around nothing. */
  fitAxis(curves) {
    const values =
        curves.flatMap((curve) => [...curve.y, ...(curve.low ?? []), ...(curve.high ?? [])]).filter(Number.isFinite);
    const low = Math.min(...values), high = Math.max(...values), pad = Math.abs(low) * 0.1 || 1,
          {y} = this.chart.options.scales;
    const isFlat = values.length > 0 && low === high && !this.isLog;
    y.min = this.options.yMin ?? (isFlat ? low - pad : undefined);
    y.max = isFlat ? high + pad : undefined;
  }

  /** Of the x axis, for as long as no part of it was chosen. */
  setFit(least, most) { Object.assign(this.chart.options.scales.x, {min: least, max: most}); }

  setMarks(marks) {
    this.marks = marks;
    this.chart.draw();
  }

  setRange(least, most) {
    this.options.xMin = least;
    this.options.xMax = most;
    Object.assign(this.chart.options.scales.x, {min: least, max: most});
    this.chart.update("none");
  }

  fillTable() {
    const names = [this.options.xName ?? this.options.xTitle ?? "x", ...this.curves.map((curve) => curve.label)];
    this.head.replaceChildren(...names.map((name) => h("th", {scope: "col"}, name)));
    const format = this.options.yFormat ?? number, formatX = this.options.xTip ?? this.options.xFormat ?? number;
    keep(
        this.body, tableRows(this.curves), ([x]) => x,
        ([x, values]) => h("tr", {}, h("th", {scope: "row"}, formatX(x)), values.map(() => h("td", {}))),
        (row, [, values]) => values.forEach(
            (value, i) =>
                row.children[i + 1] && setText(row.children[i + 1], value === undefined ? "" : format(value))));
  }

  showTable(isShown) {
    this.frame.hidden = isShown;
    this.table.hidden = !isShown;
    this.body.weirKept = undefined;
    this.body.replaceChildren();
    if (isShown) this.fillTable();
  }

  close() {
    plots.delete(this);
    this.offTheme();
    this.chart.destroy();
  }
}

/** Drag over a plot to see a part of it, double click for all: onRange(least, most), or onRange() for all. */
export function zoomable(plot, onRange) {
  const veil = h("div", {class: "plot-veil", hidden: true});
  let from = null;
  plot.frame.append(veil);
  const inside = (event) => {
    const {left, right} = plot.chart.chartArea, box = plot.canvas.getBoundingClientRect();
    return Math.min(right, Math.max(left, event.clientX - box.left));
  };
  plot.canvas.addEventListener("pointerdown", (event) => {
    from = inside(event);
  });
  plot.canvas.addEventListener("pointermove", (event) => {
    if (from === null || Math.abs(inside(event) - from) < 4) return;
    veil.hidden = false;
    veil.style.left = `${Math.min(from, inside(event))}px`;
    veil.style.width = `${Math.abs(inside(event) - from)}px`;
  });
  plot.canvas.addEventListener("pointerup", (event) => {
    const ends = [from ?? 0, inside(event)].sort((a, b) => a - b).map((px) => plot.chart.scales.x.getValueForPixel(px));
    if (!veil.hidden && ends[1] > ends[0]) onRange(...ends);
    veil.hidden = true;
    from = null;
  });
  plot.canvas.addEventListener("pointerleave", () => {
    veil.hidden = true;
    from = null;
  });
  plot.canvas.addEventListener("dblclick", () => onRange());
}
