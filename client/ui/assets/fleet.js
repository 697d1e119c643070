/* The fleet: who has the executors, what waits and why, how members are, how the store is. */
import {swatch} from "./colours.js";
import {bar, runLink, stateMark, sweepLink} from "./cells.js";
import {empty, h, keep, panel, setAttribute, setText} from "./dom.js";
import {age, bytes, count, duration, isOver, metric, plural, short} from "./format.js";
import {Plot} from "./plot.js";
import {membersOf, now, runsOf, state} from "./store.js";

const TRACKS_MAX = 9; // runs with a colour of their own; the rest is one area
const ROWS_MAX = 6;   // of each list

/** A run keeps its colour as long as it is shown. */
function colourOf(colours, run) {
  if (!colours.has(run)) {
    const used = new Set(colours.values());
    let free = 0;
    while (used.has(free)) free++;
    colours.set(run, free);
  }
  return colours.get(run);
}

/** Of runs, but for a sweep's trials, which come and go: they are one track. */
function tracksByOwner() {
  const tracks = new Map();
  for (const [run, values] of state.history.tracks) {
    const sweep = state.runs.get(run)?.sweep, name = sweep ?? run, known = tracks.get(name);
    tracks.set(name, {
      name,
      link: sweep ? sweepLink(sweep) : runLink(run),
      values: known ? values.map((value, i) => value + known.values[i]) : values
    });
  }
  return [...tracks.values()]
      .map((track) => ({...track, sum: track.values.reduce((a, b) => a + b, 0)}))
      .sort((a, b) => b.sum - a.sum);
}

function tracksOf(colours) {
  const {times, executors} = state.history, end = times[times.length - 1] ?? 0;
  const x = times.map((time) => (time - end) / 60000), all = tracksByOwner(), shown = all.slice(0, TRACKS_MAX),
        rest = all.slice(TRACKS_MAX);
  for (const name of [...colours.keys()])
    if (!shown.some((track) => track.name === name)) colours.delete(name);
  const curves = shown.map(
      ({name, link, values}) =>
          ({label: name, link, x, y: values, colour: colourOf(colours, name), dash: [], isStep: true}));
  if (rest.length)
    curves.push({
      label: `${rest.length} others`,
      x,
      y: x.map((_, i) => rest.reduce((sum, {values}) => sum + values[i], 0)),
      tone: "dim",
      isStep: true
    });
  const limit =
      {label: "all executors", x, y: executors, tone: "dim", isStep: true, isLimit: true, dash: [4, 3], width: 1.2};
  return {curves, limit, from: Math.max(-10, Math.min(-1, x[0] ?? -1))};
}

function makeTiles() {
  const tiles = Object.fromEntries(["executors", "runs", "speed", "servers", "store"].map(
      (name) => [name, {value: h("strong", {}), more: h("span", {class: "tile-more"})}]));
  const titles = {
    executors: "Executors in use",
    runs: "Runs",
    speed: "Samples a second",
    servers: "Weights on servers",
    store: "Store"
  };
  const element =
      h("div", {class: "tiles"},
        Object.entries(tiles).map(
            ([name, tile]) =>
                h("div", {class: "tile", "data-name": name}, h("span", {class: "tile-title"}, titles[name]), tile.value,
                  tile.more)));
  return {element, tiles};
}

function showTiles(tiles) {
  const {fleet} = state, servers = membersOf("server"), live = runsOf((run) => run.state === "running");
  const used = servers.reduce((sum, server) => sum + (server.bytes ?? 0), 0),
        bound = servers.reduce((sum, server) => sum + (server.memory_bytes ?? 0), 0);
  const set = (name, value, more) => {
    setText(tiles[name].value, value);
    setText(tiles[name].more, more);
  };
  set("executors", `${count(fleet.busy_executors ?? 0)} / ${count(fleet.executors ?? 0)}`,
      `of ${plural(fleet.workers ?? 0, "worker")}`);
  set("runs", count(live.length), `running, ${count(fleet.queued ?? 0)} queued`);
  set("speed", short(live.reduce((sum, run) => sum + (run.samples_per_second ?? 0), 0)),
      `in ${plural(live.length, "run")}`);
  set("servers", bytes(used),
      bound ? `of ${bytes(bound)} on ${plural(servers.length, "server")}` : `on ${plural(servers.length, "server")}`);
  const troubled = runsOf((run) => run.store_message);
  set("store",
      fleet.store_message ? "Trouble" :
          troubled.length ? "Late" :
                            "Healthy",
      fleet.store_message ?? (troubled.length ? `${plural(troubled.length, "run")} waits for it` : "no trouble known"));
  setAttribute(tiles.store.value, "data-bad", fleet.store_message || troubled.length ? "yes" : null);
}

function queueRow() {
  const place = h("span", {class: "queue-place"}), link = h("a", {class: "run-name"}),
        why = h("span", {class: "queue-why"});
  const priority = h("span", {class: "queue-more"}), wait = h("span", {class: "queue-more"});
  return {
    element: h("li", {}, place, h("div", {class: "queue-text"}, link, why), priority, wait),
    place,
    link,
    why,
    priority,
    wait
  };
}

function makeQueue() {
  const rows = new WeakMap(), list = h("ol", {class: "queue"}),
        none = empty("Nothing waits. A run that finds no workers or servers appears here, with the reason.");
  const more = h("a", {href: "#/runs?filter=state%3Aqueued", class: "more"});
  return {
    element: h("div", {}, list, none, more),
    show() {
      const queue = (state.fleet.queue ?? [])
                        .map((id, i) => ({i, run: state.runs.get(id)}))
                        .filter(({run}) => run)
                        .slice(0, ROWS_MAX);
      none.hidden = queue.length > 0;
      more.hidden = (state.fleet.queued ?? 0) <= queue.length;
      setText(more, `All ${count(state.fleet.queued ?? 0)} that wait`);
      keep(
          list, queue, ({run}) => run.run,
          () => {
            const row = queueRow();
            rows.set(row.element, row);
            return row.element;
          },
          (element, {i, run}) => {
            const row = rows.get(element);
            setText(row.place, i + 1);
            setText(row.link, run.run);
            setAttribute(row.link, "href", runLink(run.run));
            setText(row.why, run.message ?? "waits for its turn");
            setText(row.priority, run.priority ? `priority ${run.priority}` : "");
            setText(row.wait, `for ${age(run.submitted_unix_ms, now())}`);
          });
    }
  };
}

/** A member in a few words: what it is, how much of it is used, what troubles it. */
function memberCard() {
  const mark = stateMark(), name = h("span", {class: "member-name"}), load = bar(),
        more = h("span", {class: "member-more"});
  return {
    element: h("li", {class: "member"}, h("div", {class: "member-head"}, name, mark.element), load.element, more),
    mark,
    name,
    load,
    more
  };
}

/** largest: bytes of the server that has the most, where nothing else bounds them. */
function showMember(card, member, largest) {
  const seats = member.seats ?? [], used = seats.reduce((sum, seat) => sum + (seat.executors ?? 0), 0);
  setText(card.name, member.id);
  setAttribute(card.element, "title", `${member.host ?? ""} ${member.device ?? member.address ?? ""}`.trim());
  card.mark.show(member.state);
  if (member.role === "server")
    card.load.show(
        (member.bytes ?? 0) / (member.memory_bytes || largest || 1),
        `${bytes(member.bytes ?? 0)}${member.memory_bytes ? ` of ${bytes(member.memory_bytes)}` : ""}`);
  else
    card.load.show(
        member.executors ? used / member.executors : 0,
        `${count(used)} / ${plural(member.executors ?? 0, "executor")}`);
  const trouble = member.unreached ? `does not reach ${plural(member.unreached, "member")}` : member.message;
  setText(
      card.more,
      trouble ??
          (member.role === "server" ? `${plural(member.blocks ?? 0, "block")} of ${plural(member.runs ?? 0, "run")}` :
                                      seats.map((seat) => seat.run).join(", ") || "idle"));
  setAttribute(card.more, "title", card.more.textContent);
  setAttribute(card.more, "data-bad", trouble ? "yes" : null);
}

function makeMembers() {
  const cards = new WeakMap(), list = h("ul", {class: "members"});
  const none = empty(
      "No worker and no server has joined.",
      "weir-server --role=parameters --coordinator HOST:7070 --store file:///srv/weir",
      "weir-worker --coordinator HOST:7070 --data-root /srv/data");
  return {
    element: h("div", {}, list, none),
    show() {
      const trouble = (member) => (member.unreached || member.message ? 0 : 1);
      const members =
          [...membersOf("server"), ...membersOf("worker")].sort((a, b) => trouble(a) - trouble(b)).slice(0, 64);
      const largest = Math.max(...members.map((member) => member.bytes ?? 0));
      none.hidden = members.length > 0;
      keep(list, members, (member) => member.id, () => {
        const card = memberCard();
        cards.set(card.element, card);
        return card.element;
      }, (element, member) => showMember(cards.get(element), member, largest));
    }
  };
}

/** A list of runs: a line each, made of texts. */
function runList(texts, nothing) {
  const list = h("ul", {class: "lines"}), none = h("p", {class: "empty"}, nothing);
  return {
    element: h("div", {}, list, none),
    show(runs) {
      none.hidden = runs.length > 0;
      keep(
          list, runs.slice(0, ROWS_MAX), (run) => run.run,
          () =>
              h("li", {}, h("a", {class: "run-name"}), texts.map((text, i) => h("span", {class: i ? "" : "dim"})),
                h("span", {class: "lines-why"})),
          (element, run) => {
            const [link, ...cells] = element.children, why = cells.pop();
            setText(link, run.run);
            setAttribute(link, "href", runLink(run.run));
            cells.forEach((cell, i) => setText(cell, texts[i](run)));
            setText(why, run.store_message ?? "");
          });
    }
  };
}

const behind = (run) => (run.step ?? 0) - (run.checkpoint_step ?? 0);

/** Live runs, those first whose newest checkpoint is the furthest behind. */
function makeStore() {
  const mark = stateMark(), trouble = h("p", {class: "panel-says"});
  const list = runList(
      [
        (run) => (run.checkpoint_step ? `checkpoint of step ${count(run.checkpoint_step)}` : "no checkpoint yet"),
        (run) => `${plural(behind(run), "step")} ago`
      ],
      "Every run's newest step is in the store.");
  return {
    mark,
    element: h("div", {}, trouble, list.element),
    show() {
      const message = state.fleet.store_message ?? "";
      mark.show(message ? "failed" : "ready");
      setText(mark.element.lastElementChild, message ? "in trouble" : "answers");
      setText(trouble, message);
      trouble.hidden = !message;
      const isLate = (run) => Number(Boolean(run.store_message));
      list.show(
          runsOf((run) => ["running", "held", "finishing"].includes(run.state) && (behind(run) > 0 || isLate(run)))
              .sort((a, b) => isLate(b) - isLate(a) || behind(b) - behind(a)));
    }
  };
}

/** What ended last, and how. */
function makeEnded() {
  const list = runList(
      [
        (run) => `${run.state} ${age(run.finished_unix_ms, now())} ago`,
        (run) => (
            run.objective ? `${run.objective.replaceAll("_", " ")} ${metric(run.objective, run.objective_value ?? 0)}` :
                            "")
      ],
      "No run has ended yet.");
  return {
    element: list.element,
    show: () => list.show(runsOf((run) => isOver(run.state) && run.finished_unix_ms && !run.sweep)
                              .sort((a, b) => b.finished_unix_ms - a.finished_unix_ms))
  };
}

function makeLegend() {
  const list = h("ul", {class: "legend"});
  return {
    element: list,
    show(curves) {
      keep(
          list, curves, (curve) => `${curve.label}:${curve.colour}`,
          (curve) =>
              h("li", {}, curve.tone ? h("span", {class: "swatch none"}) : swatch(curve.colour),
                curve.tone ? h("span", {}, curve.label) : h("a", {href: curve.link}, curve.label), h("b", {})),
          (element, curve) => setText(element.lastElementChild, count(curve.y[curve.y.length - 1] ?? 0)));
    }
  };
}

export function mount(root) {
  const colours = new Map(), tiles = makeTiles(), queue = makeQueue(), members = makeMembers(), store = makeStore(),
        ended = makeEnded(), legend = makeLegend();
  const plot = new Plot({
    title: "Executors by run over ten minutes",
    height: 252,
    axisWidth: 46,
    isStacked: true,
    yMin: 0,
    yPrecision: 0,
    xMin: -10,
    xMax: 0,
    xFormat: (x) => (x === 0 ? "now" : `${Math.round(-x * 10) / 10} min`),
    xTip: (x) => (x === 0 ? "now" : `${duration(-x * 60)} ago`),
    yFormat: (y) => count(y)
  });
  const idle = empty("Nothing has trained in the last ten minutes.", "weir submit spec.yaml --follow");
  root.append(
      tiles.element,
      h("div", {class: "fleet-grid"},
        h("div", {class: "column"},
          panel(
              "Executors by run", h("span", {class: "dim"}, "the last ten minutes"),
              h("div", {class: "with-legend"}, plot.element, h("div", {class: "legend-box"}, legend.element, idle))),
          panel("Members", h("a", {href: "#/members"}, "All"), members.element)),
        h("div", {class: "column"}, panel("Queue", null, queue.element),
          panel("Ended last", h("a", {href: "#/runs?filter=state%3Adone"}, "All"), ended.element),
          panel("Store", store.mark.element, store.element))));
  return {
    title: "Fleet",
    update() {
      const {curves, limit, from} = tracksOf(colours);
      plot.setRange(from, 0);
      plot.draw([...curves, limit]);
      legend.show(curves);
      idle.hidden = curves.length > 0;
      showTiles(tiles.tiles);
      for (const part of [queue, members, ended, store]) part.show();
    },
    close: () => plot.close(),
  };
}
