/* The frame: which view is shown, the keys, how the cluster is reached. */
import {currentTheme, onTheme, switchTheme} from "./colours.js";
import * as compare from "./compare.js";
import {showKeys} from "./dialog.js";
import {command, h, keep, say, setAttribute, setText} from "./dom.js";
import * as fleet from "./fleet.js";
import {count} from "./format.js";
import * as members from "./members.js";
import {switchTables} from "./plot.js";
import {current, go} from "./route.js";
import * as run from "./run.js";
import * as runs from "./runs.js";
import {start, state, subscribe} from "./store.js";
import * as sweeps from "./sweeps.js";

const VIEWS = [
  {name: "fleet", title: "Fleet", of: () => fleet, sum: () => ""},
  {name: "runs", title: "Runs", of: (route) => (route.id ? run : runs), sum: () => state.fleet.live_runs},
  {name: "compare", title: "Compare", of: () => compare, sum: () => state.selected.size},
  {name: "sweeps", title: "Sweeps", of: () => sweeps, sum: () => ""},
  {
    name: "members",
    title: "Members",
    of: () => members,
    sum: () => (state.fleet.workers ?? 0) + (state.fleet.servers ?? 0)
  },
];
const KEYS = [
  ["1 2 3 4 5", "Fleet, Runs, Compare, Sweeps, Members"], ["/", "Filter"], ["j k", "Next and previous row"],
  ["Enter", "Open the row"], ["Esc", "Back; clear a filter or brush"], ["x", "Select the row"],
  ["c", "Compare what is selected"], ["[ ]", "Previous and next event of a run"], ["t", "Charts as tables, and back"],
  ["p f e l", "Of a run: pause or resume, fork, export, limits"], ["d", "Light or dark"], ["?", "These keys"]
];

const root = document.getElementById("view"), nav = document.getElementById("nav"),
      theme = document.getElementById("theme"), banner = document.getElementById("banner");
let view = null, shown = "", isBroken = false;

function showView() {
  const route = current(), entry = VIEWS.find((one) => one.name === route.view);
  if (!entry) return go("#/fleet");
  if (route.text === shown) return undefined;
  shown = route.text;
  view?.close();
  view = null;
  root.replaceChildren();
  root.dataset.view = route.view + (route.id ? "-one" : "");
  view = entry.of(route).mount(root, route);
  document.title = view.title === "Weir" ? "Weir" : `${view.title} · Weir`;
  setAttribute(root, "aria-label", view.title);
  for (const link of nav.children) setAttribute(link, "aria-current", link.dataset.name === route.view ? "page" : null);
  root.scrollTop = 0;
  say(view.title);
  return update();
}

function update() {
  for (const link of nav.children)
    setText(
        link.lastElementChild,
        (VIEWS.find((one) => one.name === link.dataset.name).sum() || "") &&
            count(VIEWS.find((one) => one.name === link.dataset.name).sum()));
  showStatus();
  if (state.isLoaded) view?.update();
}

function showStatus() {
  const status = document.getElementById("status"), {error} = state;
  setAttribute(status, "data-kind", error ? "bad" : state.isLoaded ? "live" : "waits");
  setText(
      status,
      error              ? "Not connected" :
          state.isLoaded ? (state.fleet.tenant && state.fleet.tenant !== "default" ? state.fleet.tenant : "Connected") :
                           "Connecting");
  const text = error       ? error.message :
      state.fleet.insecure ? "Connections between this cluster's machines are plaintext (--insecure)." :
                             "";
  setAttribute(banner, "data-kind", error ? "bad" : "note");
  banner.hidden = !text;
  if (banner.dataset.text === text) return;
  banner.dataset.text = text;
  banner.replaceChildren(h("span", {}, text), error?.status === 401 || error?.status === 0 ? command("weir ui") : "");
}

function showTheme() { setText(theme, currentTheme() === "dark" ? "☾" : "☀"); }

function back() {
  const route = current();
  if (view?.back?.()) return;
  if (view?.filter?.value) {
    view.filter.value = "";
    view.update();
  } else if (route.id)
    go(`#/${route.view}`);
  else if (route.view === "compare")
    go("#/runs");
}

const actions = {
  "/": () => {
    view?.filter ? view.filter.focus() : go("#/runs");
  },
  j: () => view?.table?.move(1),
  k: () => view?.table?.move(-1),
  ArrowDown: () => view?.table?.move(1),
  ArrowUp: () => view?.table?.move(-1),
  Enter: () => view?.table?.open(),
  x: () => view?.table?.toggle(),
  Escape: back,
  c: () => go(`#/compare?runs=${[...state.selected].slice(0, compare.COMPARED_MAX).map(encodeURIComponent).join(",")}`),
  "[": () => view?.moveEvent?.(-1),
  "]": () => view?.moveEvent?.(1),
  t: () => say(switchTables() ? "Charts are tables" : "Charts are drawn"),
  d: switchTheme,
  "?": () => {
    showKeys(KEYS);
  },
};
VIEWS.forEach((entry, i) => {
  actions[i + 1] = () => go(`#/${entry.name}`);
});

function onKey(event) {
  const at = event.target, isTyping = at.matches?.("input:not([type=checkbox]), select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (isTyping && event.key === "Escape") return at.blur();
  if (isTyping && !(at.type === "search" && event.key === "Enter")) return undefined;
  if (isTyping) {
    at.blur();
    return view?.table?.move(1);
  }
  if (event.key === "Enter" && at.matches?.("a, button, input, summary")) return undefined;
  if (event.key.startsWith("Arrow") && !view?.table) return undefined;
  const action = actions[event.key];
  if (!action) return view?.press?.(event.key) ? event.preventDefault() : undefined;
  event.preventDefault();
  return action();
}

function onError(what) {
  if (isBroken) return;
  isBroken = true;
  banner.hidden = false;
  setAttribute(banner, "data-kind", "bad");
  banner.replaceChildren(h("span", {}, `Something in this page failed: ${what}. Reloading it may help.`));
}

addEventListener("error", (event) => onError(event.message));
addEventListener("unhandledrejection", (event) => onError(event.reason?.message ?? "an answer"));
addEventListener("hashchange", showView);
addEventListener("keydown", onKey);
theme.addEventListener("click", switchTheme);
document.getElementById("help").addEventListener("click", () => showKeys(KEYS));
keep(
    nav, VIEWS, (entry) => entry.name,
    (entry) => h("a", {href: `#/${entry.name}`, "data-name": entry.name}, entry.title, h("span", {class: "sum"})));
onTheme(showTheme);
showTheme();
subscribe(update);
showView();
start();
