/* A curve the size of a word. */
import {s} from "./dom.js";

const WIDTH = 96, HEIGHT = 22, PAD = 3;

function points(values) {
  const shown = values.filter(Number.isFinite);
  if (shown.length < 2) return [];
  const least = Math.min(...shown), range = Math.max(...shown) - least || 1;
  const step = (WIDTH - 2 * PAD) / (values.length - 1);
  return values
      .map((value, i) => [PAD + i * step, HEIGHT - PAD - ((value - least) / range) * (HEIGHT - 2 * PAD), value])
      .filter(([, , value]) => Number.isFinite(value));
}

export function spark() {
  const line = s("path", {class: "spark-line"}), dot = s("circle", {class: "spark-dot", r: 1.9});
  const element =
      s("svg", {class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true"},
        line, dot);
  let drawn = null;
  return {
    element,
    /** values: oldest first; isLive: its last point is the present. */
    draw(values, isLive) {
      const key = `${values.length}:${values[0]}:${values[values.length - 1]}:${isLive}`;
      if (key === drawn) return;
      drawn = key;
      const at = points(values), last = at[at.length - 1];
      line.setAttribute("d", at.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join(""));
      dot.style.display = last && isLive ? "" : "none";
      if (last) {
        dot.setAttribute("cx", last[0].toFixed(1));
        dot.setAttribute("cy", last[1].toFixed(1));
      }
    },
  };
}
