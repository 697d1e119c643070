/* How trials came to be: each a line from rung to rung, and forks from their parents; or how many came to each rung. */
import {h, s, setText} from "./dom.js";
import {count, metric, number} from "./format.js";

const LEFT = 72, RIGHT = 26, ROW = 16, TOP = 24;

/** Trials as a tree is written: each, then what was forked from it, so that no fork crosses another one's line. */
function inTreeOrder(data) {
  const ordered = [], forks = new Map(), roots = [];
  const isFork = (trial) =>
      Boolean(trial.has_parent && data.trials[trial.parent ?? 0] && (trial.parent ?? 0) < (trial.number ?? 0));
  for (const trial of data.trials.filter(Boolean)) {
    const parent = trial.parent ?? 0;
    if (isFork(trial))
      forks.set(parent, [...(forks.get(parent) ?? []), trial]);
    else
      roots.push(trial);
  }
  for (const next = roots.reverse(); next.length;) {
    const trial = next.pop();
    ordered.push(trial);
    next.push(...(forks.get(trial.number ?? 0) ?? []).sort((a, b) => (a.parent_rung ?? 0) - (b.parent_rung ?? 0)));
  }
  return {ordered, isFork};
}

/** Forks of trials: time goes from rung to rung. */
export function drawLineage(data, width, open) {
  const {ordered, isFork} = inTreeOrder(data),
                  rungs = Math.max(1, ...ordered.map((trial) => trial.results?.length ?? 0));
  const rows = new Map(ordered.map((trial, row) => [trial.number ?? 0, row]));
  const height = TOP + ordered.length * ROW + 4, x = (rung) => LEFT + (rung / rungs) * (width - LEFT - RIGHT),
        y = (number) => TOP + (rows.get(number ?? 0) + 0.5) * ROW;
  const results = ordered.map((trial) => data.result(trial)).filter(Number.isFinite), low = Math.min(...results),
        range = Math.max(...results) - low || 1;
  const best = data.info.has_best ? data.info.best ?? 0 : -1;
  const shapes = ordered.flatMap((trial) => {
    const from = isFork(trial) ? (trial.parent_rung ?? 0) + 1 : 0,
          to = Math.max(from, trial.results?.length ?? 0) || 0.3, at = y(trial.number);
    const value = ((data.result(trial) ?? low) - low) / range, rank = data.objective.isMin ? 1 - value : value;
    const line =
        s("path", {
          class: "trial-line",
          "data-kept": "yes",
          "data-best": (trial.number ?? 0) === best ? "yes" : null,
          d: `M${x(from)} ${at}H${Math.max(x(to), x(from) + 8)}`
        },
          s("title", {}, `trial ${trial.number ?? 0}: ${number(data.result(trial) ?? NaN)}`));
    line.style.stroke = `color-mix(in oklab, var(--accent) ${Math.round(100 * rank ** 1.5)}%, var(--mark))`;
    line.addEventListener("click", () => open(trial));
    const fork =
        isFork(trial) ? [s("path", {class: "fork", d: `M${x(from) - 5} ${y(trial.parent)}V${at - 5}q0 5 5 5`})] : [];
    const name =
        s("text", {class: "axis-value", x: LEFT - 12, y: at + 3.5, "text-anchor": "end"}, `trial ${trial.number ?? 0}`);
    return [...fork, line, s("circle", {class: "node", cx: Math.max(x(to), x(from) + 8), cy: at, r: 2.6}), name];
  });
  const ticks = Array.from(
      {length: rungs + 1},
      (_, rung) =>
          [s("line", {class: "lane", x1: x(rung), x2: x(rung), y1: TOP - 6, y2: height}),
           s("text", {class: "axis-value", x: x(rung), y: 12, "text-anchor": "middle"},
             rung === 0 ? "start" : count(data.rungs[rung - 1] ?? rung))]);
  return s(
      "svg", {class: "lineage", width, height, role: "img", "aria-label": `Forks of ${ordered.length} trials`},
      ticks.flat(), shapes);
}

/** A row a rung: how many trials came to it, and what they had there. */
export function rungRows(data) {
  const trials = data.trials.filter(Boolean),
        n = Math.max(data.rungs.length, ...trials.map((trial) => trial.results?.length ?? 0), 0);
  return Array.from({length: n}, (_, rung) => {
    const values = trials.map((trial) => trial.results?.[rung])
                       .filter(Number.isFinite)
                       .sort((a, b) => (data.objective.isMin ? a - b : b - a));
    return {
      rung,
      came: values.length,
      best: values[0],
      median: values[Math.floor(values.length / 2)],
      all: trials.length
    };
  });
}

export function makeRungs() {
  const body = h("tbody", {});
  const table =
      h("table", {class: "plain", "aria-label": "Rungs"},
        h("thead", {},
          h("tr", {},
            ["Rung", "Trials", "", "Best", "Median"].map(
                (title, i) => h("th", {scope: "col", class: i === 0 || i === 2 ? "" : "end"}, title)))),
        body);
  return {
    element: table,
    show(data) {
      const rows = rungRows(data), name = data.objective.metric;
      while (body.children.length > rows.length) body.lastElementChild.remove();
      rows.forEach((row, i) => {
        const element = body.children[i] ??
            body.appendChild(
                h("tr", {}, h("th", {scope: "row"}), h("td", {class: "end"}),
                  h("td", {}, h("span", {class: "bar wide"}, h("span", {class: "bar-fill"}))), h("td", {class: "end"}),
                  h("td", {class: "end"})));
        setText(element.children[0], data.rungName(row.rung));
        setText(element.children[1], count(row.came));
        element.querySelector(".bar-fill").style.width = `${row.all ? (100 * row.came) / row.all : 0}%`;
        setText(element.children[3], metric(name, row.best));
        setText(element.children[4], metric(name, row.median));
      });
    }
  };
}
