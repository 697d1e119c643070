/* How trials came to be: each a line from rung to rung, and forks from their parents; or how many came to each rung. */
import {h, s, setText} from "./dom.js";
import {count, metric, number} from "./format.js";

const LEFT = 56, RIGHT = 22, ROW = 15;

/** Forks of trials: time goes from rung to rung. */
export function drawLineage(data, width, open) {
  const trials = data.trials.filter(Boolean), rungs = Math.max(1, ...trials.map((trial) => trial.results?.length ?? 0));
  const height = 24 + trials.length * ROW, x = (rung) => LEFT + (rung / rungs) * (width - LEFT - RIGHT),
        y = (trial) => 22 + (trial.number ?? 0) * ROW;
  const results = trials.map((trial) => data.result(trial)).filter(Number.isFinite), low = Math.min(...results),
        range = Math.max(...results) - low || 1;
  const best = data.info.has_best ? data.info.best ?? 0 : -1;
  const shapes = trials.flatMap((trial) => {
    const from = trial.has_parent ? (trial.parent_rung ?? 0) + 1 : 0, to = Math.max(from, trial.results?.length ?? 0),
          parent = data.trials[trial.parent ?? 0];
    const at = ((data.result(trial) ?? low) - low) / range, rank = data.objective.isMin ? 1 - at : at;
    const line =
        s("path", {
          class: "trial-line",
          "data-kept": "yes",
          "data-best": (trial.number ?? 0) === best ? "yes" : null,
          d: `M${x(from)} ${y(trial)}L${x(to || 0.3)} ${y(trial)}`
        },
          s("title", {}, `trial ${trial.number ?? 0}: ${number(data.result(trial) ?? NaN)}`));
    line.style.opacity = 0.3 + 0.7 * rank;
    line.addEventListener("click", () => open(trial));
    const fork = trial.has_parent && parent ? [s("path", {
      class: "fork",
      d: `M${x(from)} ${y(parent)}C${x(from) + 14} ${y(parent)} ${x(from) - 10} ${y(trial)} ${x(from)} ${y(trial)}`
    })] :
                                              [];
    return [
      ...fork, line,
      s("circle", {class: trial.state === "running" ? "node live" : "node", cx: x(to || 0.3), cy: y(trial), r: 2.6}),
      s("text", {class: "axis-value", x: LEFT - 8, y: y(trial) + 3.5, "text-anchor": "end"},
        `trial ${trial.number ?? 0}`)
    ];
  });
  const ticks = Array.from(
      {length: rungs + 1},
      (_, rung) =>
          s("text", {class: "axis-value", x: x(rung), y: 11, "text-anchor": "middle"},
            rung === 0 ? "start" : count(data.rungs[rung - 1] ?? rung)));
  return s(
      "svg", {class: "lineage", width, height, role: "img", "aria-label": `Forks of ${trials.length} trials`}, ticks,
      shapes);
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
      step: data.rungs[rung],
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
        setText(element.children[0], row.step === undefined ? `rung ${row.rung}` : `step ${count(row.step)}`);
        setText(element.children[1], count(row.came));
        element.querySelector(".bar-fill").style.width = `${row.all ? (100 * row.came) / row.all : 0}%`;
        setText(element.children[3], metric(name, row.best));
        setText(element.children[4], metric(name, row.median));
      });
    }
  };
}
