/* All runs, by filter. */
import {bar, partColumn, runLink, stateMark, stepText} from "./cells.js";
import {empty, h, setAttribute, setText} from "./dom.js";
import {NONE, age, count, duration, isOver, metric, number, short, stateRank} from "./format.js";
import {go} from "./route.js";
import {spark} from "./spark.js";
import {now, select, state} from "./store.js";
import {LongTable, textColumn} from "./table.js";

/** "lenet state:running owner:ada -sweep:x": each word must be there, one that begins with - must not. */
function filterOf(text) {
  const words = text.toLowerCase().split(/\s+/).filter((word) => word && word !== "-");
  const fields = {
    state: (run) => run.state,
    owner: (run) => run.tenant,
    tenant: (run) => run.tenant,
    sweep: (run) => run.sweep,
    name: (run) => run.name
  };
  const test = (run, word) => {
    const [key, value] = word.includes(":") ? word.split(/:(.*)/) : [];
    if (fields[key]) return (fields[key](run) ?? "").toLowerCase().startsWith(value);
    return `${run.run} ${run.name ?? ""} ${run.tenant ?? ""} ${run.message ?? ""} ${run.state}`.toLowerCase().includes(
        word);
  };
  return (run) => words.every((word) => (word[0] === "-" ? !test(run, word.slice(1)) : test(run, word)));
}

/** Live ones first, then the newest. */
const inOrder = (a, b) => stateRank(a.state) - stateRank(b.state) ||
    (b.submitted_unix_ms ?? 0) - (a.submitted_unix_ms ?? 0) || (a.run < b.run ? -1 : 1);

function checkCell() {
  const box = h("input", {type: "checkbox"});
  let shown = null;
  box.addEventListener("change", () => select(shown, box.checked));
  return {
    element: box,
    show(run) {
      shown = run.run;
      box.checked = state.selected.has(run.run);
      setAttribute(box, "aria-label", `Select ${run.run}`);
    }
  };
}

function nameCell() {
  const link = h("a", {class: "run-name"}), message = h("span", {class: "run-message"});
  return {
    element: h("div", {class: "run-cell"}, link, message),
    show(run) {
      setText(link, run.run);
      setAttribute(link, "href", runLink(run.run));
      setText(message, run.message ?? run.store_message ?? (run.parent ? `fork of ${run.parent}` : ""));
      setAttribute(message, "title", run.message ?? run.store_message);
      setAttribute(message, "data-bad", run.state === "failed" ? "yes" : null);
    }
  };
}

function columns() {
  return [
    partColumn("check", "", checkCell, {width: "34px", align: "centre"}),
    partColumn("run", "Run", nameCell, {sort: (run) => run.run}),
    partColumn(
        "state", "State",
        () => {
          const mark = stateMark();
          return {element: mark.element, show: (run) => mark.show(run.state)};
        },
        {width: "104px", sort: (run) => stateRank(run.state)}),
    partColumn(
        "spark", "Loss",
        () => {
          const curve = spark();
          return {element: curve.element, show: (run) => curve.draw(run.sparkline ?? [], !isOver(run.state))};
        },
        {width: "112px", sort: (run) => run.loss}),
    textColumn("loss", "", (run) => number(run.loss ?? NaN), {width: "78px", align: "end", sort: undefined}),
    textColumn(
        "objective", "Objective", (run) => (run.objective ? metric(run.objective, run.objective_value ?? 0) : NONE),
        {width: "92px", align: "end", sort: (run) => (run.objective ? run.objective_value ?? 0 : undefined)}),
    partColumn(
        "progress", "Progress",
        () => {
          const progress = bar();
          return {
            element: progress.element,
            show: (run) => progress.show(run.steps ? (run.step ?? 0) / run.steps : 0, stepText(run))
          };
        },
        {width: "212px", sort: (run) => (run.steps ? (run.step ?? 0) / run.steps : 0)}),
    textColumn(
        "left", "Left", (run) => (run.seconds_left ? duration(run.seconds_left) : NONE),
        {width: "76px", align: "end", sort: (run) => run.seconds_left || undefined}),
    textColumn("speed", "Samples/s", (run) => (run.state === "running" ? short(run.samples_per_second ?? 0) : NONE), {
      width: "84px",
      align: "end",
      sort: (run) => (run.state === "running" ? run.samples_per_second ?? 0 : undefined)
    }),
    textColumn(
        "workers", "Workers", (run) => (run.workers ? count(run.workers) : NONE),
        {width: "72px", align: "end", sort: (run) => run.workers ?? 0}),
    textColumn("owner", "Owner", (run) => run.tenant ?? NONE, {width: "92px"}),
    textColumn(
        "age", "Age", (run) => age(run.submitted_unix_ms, now()),
        {width: "84px", align: "end", sort: (run) => -(run.submitted_unix_ms ?? 0)}),
  ];
}

const STATES_SHOWN = ["running", "queued", "done", "failed"];

export function mount(root, route) {
  const input = h("input", {
    type: "search",
    class: "filter",
    placeholder: "Filter: words, state:running, owner:ada, -word",
    "aria-label": "Filter runs",
    value: route.query.get("filter") ?? "",
    autocomplete: "off",
    spellcheck: "false"
  });
  const trials = h("input", {type: "checkbox"}), sum = h("span", {class: "dim", role: "status"}),
        compare = h("button", {type: "button", class: "primary", hidden: true});
  const chips = STATES_SHOWN.map((name) => h("button", {
                                   type: "button",
                                   class: "chip",
                                   onclick: () => {
                                     input.value = input.value === `state:${name}` ? "" : `state:${name}`;
                                     view.update();
                                   }
                                 }));
  const table = new LongTable(columns(), {
    label: "Runs",
    key: (run) => run.run,
    open: (run) => go(runLink(run.run)),
    rowHeight: 41,
    isSelected: (run) => state.selected.has(run.run),
    onSelect: (run, isSelected) => select(run.run, isSelected),
    describe: (run) => `${run.run}, ${run.state}, ${stepText(run)}`
  });
  const none = empty("No run is here yet.", "weir submit spec.yaml", "weir init model.onnx"),
        nothing = h("div", {class: "empty"}, h("p", {}, "No run fits this filter."));
  const frame = h("section", {class: "panel fill", "aria-label": "Runs"}, table.element, none, nothing);
  compare.addEventListener(
      "click", () => go(`#/compare?runs=${[...state.selected].map(encodeURIComponent).join(",")}`));
  root.append(
      h("div", {class: "tools"}, input, chips, h("label", {class: "check"}, trials, "Trials of sweeps"), sum, compare),
      frame);
  const view = {
    title: "Runs",
    table,
    filter: input,
    update() {
      const all = [...state.runs.values()].filter((run) => trials.checked || !run.sweep || /sweep:/.test(input.value)),
            fits = filterOf(input.value);
      const shown = all.filter(fits).sort(inOrder);
      chips.forEach((chip, i) => {
        setText(chip, `${STATES_SHOWN[i]} ${count(all.filter((run) => run.state === STATES_SHOWN[i]).length)}`);
        setAttribute(chip, "aria-pressed", String(input.value === `state:${STATES_SHOWN[i]}`));
      });
      none.hidden = !state.isLoaded || all.length > 0;
      nothing.hidden = all.length === 0 || shown.length > 0;
      table.element.hidden = shown.length === 0;
      table.show(shown);
      setText(
          sum,
          shown.length === all.length ? `${count(all.length)} runs` :
                                        `${count(shown.length)} of ${count(all.length)} runs`);
      compare.hidden = state.selected.size < 2;
      setText(compare, `Compare ${state.selected.size}`);
    },
    close: () => table.close(),
  };
  input.addEventListener("input", () => view.update());
  trials.addEventListener("change", () => view.update());
  return view;
}
