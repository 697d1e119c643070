/* What happened to a run, in lanes below its curve, on the same line of steps. */
import {h, s, setAttribute} from "./dom.js";
import {count} from "./format.js";
import {PLOT_LEFT, PLOT_RIGHT} from "./plot.js";

const LANES = [
  ["view", "views"], ["checkpoint", "checkpoints"], ["fault", "faults"], ["rollback", "roll-backs"], ["note", "notes"],
  ["state", "states"]
];
const HEIGHT = 17;

export class Lanes {
  constructor(choose) {
    this.choose = choose;
    this.svg = s("svg", {class: "lanes", role: "img", "aria-label": "Events by step"});
    this.element = h("div", {class: "lanes-frame"}, this.svg);
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this.element);
    this.shown = "";
  }

  /** A lane for each kind that there is. */
  show(events, range, chosen) {
    const lanes = LANES.filter(([kind]) => events.some((event) => event.kind === kind));
    Object.assign(this, {events, range, chosen, lanes});
    this.draw();
  }

  draw() {
    const width = this.element.clientWidth, {events = [], range = [0, 1], lanes = []} = this;
    const key = `${width}:${events.length}:${range}:${this.chosen}:${events[events.length - 1]?.step}`;
    if (!width || key === this.shown) return;
    this.shown = key;
    setAttribute(this.svg, "width", width);
    setAttribute(this.svg, "height", lanes.length * HEIGHT + 4);
    const inner = width - PLOT_LEFT - PLOT_RIGHT,
          place = (step) => PLOT_LEFT + ((step - range[0]) / (range[1] - range[0])) * inner;
    const lines = lanes.flatMap(
        ([, label], i) =>
            [s("line", {
               class: "lane",
               x1: PLOT_LEFT,
               x2: width - PLOT_RIGHT,
               y1: (i + 0.5) * HEIGHT + 2,
               y2: (i + 0.5) * HEIGHT + 2
             }),
             s("text", {class: "lane-name", x: PLOT_LEFT - 8, y: (i + 0.5) * HEIGHT + 5.5, "text-anchor": "end"},
               label)]);
    const marks = events.map((event, index) => this.mark(event, index, place(event.step ?? 0), width)).filter(Boolean);
    this.svg.replaceChildren(...lines, ...marks);
  }

  mark(event, index, x, width) {
    const lane = this.lanes.findIndex(([kind]) => kind === event.kind);
    if (lane < 0 || x < PLOT_LEFT - 1 || x > width - PLOT_RIGHT + 1) return null;
    const y = (lane + 0.5) * HEIGHT + 2;
    const shape = event.kind === "fault" || event.kind === "rollback" ?
        s("path", {d: `M${x} ${y - 4.5}l4.5 4.5l-4.5 4.5l-4.5 -4.5z`}) :
        event.kind === "checkpoint" ? s("rect", {x: x - 3.5, y: y - 3.5, width: 7, height: 7, rx: 1.5}) :
        event.kind === "view"       ? s("rect", {x: x - 1.5, y: y - 5, width: 3, height: 10, rx: 1}) :
                                      s("circle", {cx: x, cy: y, r: 3.2});
    const mark =
        s("g", {class: "mark", "data-kind": event.kind, "data-chosen": index === this.chosen ? "yes" : null}, shape,
          s("title", {}, `step ${count(event.step ?? 0)}: ${event.message ?? event.kind}`));
    mark.addEventListener("click", () => this.choose(index));
    return mark;
  }
}
