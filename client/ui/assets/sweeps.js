/* The sweeps that there are. */
import {get} from "./api.js";
import {bar, partColumn, stateMark, sweepLink} from "./cells.js";
import {empty, h, panel, setAttribute, setText} from "./dom.js";
import {NONE, age, count, number} from "./format.js";
import {go} from "./route.js";
import {now} from "./store.js";
import * as one from "./sweep.js";
import {LongTable, textColumn} from "./table.js";

const REFRESH_MS = 3000;

function columns() {
  return [
    partColumn(
        "sweep", "Sweep",
        () => {
          const link = h("a", {class: "run-name"}), message = h("span", {class: "run-message"});
          return {
            element: h("div", {class: "run-cell"}, link, message),
            show(sweep) {
              setText(link, sweep.sweep);
              setAttribute(link, "href", sweepLink(sweep.sweep));
              setText(message, sweep.end ?? sweep.message ?? "");
            }
          };
        },
        {sort: (sweep) => sweep.sweep}),
    partColumn(
        "state", "State",
        () => {
          const mark = stateMark();
          return {element: mark.element, show: (sweep) => mark.show(sweep.end ? "done" : "running")};
        },
        {width: "112px", sort: (sweep) => (sweep.end ? 1 : 0)}),
    textColumn(
        "begun", "Trials", (sweep) => count(sweep.begun ?? 0),
        {width: "90px", align: "end", sort: (sweep) => sweep.begun ?? 0}),
    partColumn(
        "running", "Running",
        () => {
          const load = bar();
          return {
            element: load.element,
            show: (sweep) => load.show(sweep.begun ? (sweep.running ?? 0) / sweep.begun : 0, count(sweep.running ?? 0))
          };
        },
        {width: "130px", sort: (sweep) => sweep.running ?? 0}),
    textColumn(
        "failed", "Failed", (sweep) => count(sweep.failed ?? 0),
        {width: "80px", align: "end", sort: (sweep) => sweep.failed ?? 0}),
    textColumn(
        "best", "Best",
        (sweep) => (sweep.has_best ? `${number(sweep.best_value ?? 0)} (trial ${sweep.best ?? 0})` : NONE),
        {width: "170px", align: "end", sort: (sweep) => (sweep.has_best ? sweep.best_value ?? 0 : undefined)}),
    textColumn("owner", "Owner", (sweep) => sweep.tenant ?? NONE, {width: "100px"}),
    textColumn(
        "age", "Age", (sweep) => age(sweep.submitted_unix_ms, now()),
        {width: "100px", align: "end", sort: (sweep) => -(sweep.submitted_unix_ms ?? 0)}),
  ];
}

export function mount(root, route) {
  if (route.id) return one.mount(root, route);
  const table = new LongTable(columns(), {
    label: "Sweeps",
    key: (sweep) => sweep.sweep,
    open: (sweep) => go(sweepLink(sweep.sweep)),
    rowHeight: 41,
    describe: (sweep) => `${sweep.sweep}, ${sweep.begun ?? 0} trials`
  });
  const none = empty("No sweep is here yet.", "weir sweep sweep.yaml --coordinator HOST:7070 --follow");
  const sum = h("span", {class: "dim"});
  let timer = 0, isClosed = false;
  none.hidden = true;
  root.append(h("div", {class: "column"}, panel("Sweeps", sum, table.element, none)));
  async function tick() {
    try {
      const sweeps = (await get("sweeps")).sweeps ?? [];
      table.show(sweeps.sort(
          (a, b) => Number(Boolean(a.end)) - Number(Boolean(b.end)) ||
              (b.submitted_unix_ms ?? 0) - (a.submitted_unix_ms ?? 0)));
      table.element.hidden = sweeps.length === 0;
      none.hidden = sweeps.length > 0;
      setText(sum, count(sweeps.length));
    } catch (failure) { /* the banner says what the next poll says */
    }
    if (!isClosed) timer = setTimeout(tick, REFRESH_MS);
  }
  tick();
  return {
    title: "Sweeps",
    table,
    update() {},
    close() {
      isClosed = true;
      clearTimeout(timer);
      table.close();
    }
  };
}
