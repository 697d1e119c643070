/* Servers and workers: what they carry, what they refuse, whom they do not reach. */
import {drain, readmit} from "./actions.js";
import {bar, partColumn, runLink, stateMark} from "./cells.js";
import {empty, h, keep, panel, setAttribute, setText} from "./dom.js";
import {NONE, age, bytes, count, number, plural} from "./format.js";
import {membersOf, now} from "./store.js";
import {LongTable, textColumn} from "./table.js";

function nameCell() {
  const name = h("span", {class: "run-name"}), message = h("span", {class: "run-message"});
  return {
    element: h("div", {class: "run-cell"}, name, message),
    show(member) {
      setText(name, member.id);
      setText(message, member.message ?? [
        member.host, member.pid && `pid ${member.pid}`, ...(member.labels ?? []),
        member.tenant && `for ${member.tenant}`
      ].filter(Boolean).join(", "));
      setAttribute(message, "title", member.message);
      setAttribute(message, "data-bad", member.message ? "yes" : null);
    }
  };
}

function stateCell() {
  const mark = stateMark();
  return {element: mark.element, show: (member) => mark.show(member.state)};
}

function reachCell() {
  const mark = stateMark();
  return {
    element: mark.element,
    show(member) {
      mark.show(member.unreached ? "cut-off" : "ready");
      setText(mark.element.lastElementChild, member.unreached ? `misses ${plural(member.unreached, "member")}` : "all");
    }
  };
}

/** The runs that a worker computes, each a link. */
function seatsCell() {
  const list = h("span", {class: "seats"});
  return {
    element: list,
    show(member) {
      keep(
          list, member.seats ?? [], (seat) => seat.run, (seat) => h("a", {href: runLink(seat.run)}, seat.run),
          (link, seat) => setAttribute(
              link, "title",
              `${seat.state ?? ""}, ${plural(seat.executors ?? 0, "executor")}, ${
                  seat.microbatches ?? 0} microbatches a step`));
    }
  };
}

function actionCell() {
  const button = h("button", {type: "button", class: "small"});
  let shown = null;
  button.addEventListener("click", () => (shown.state === "quarantined" ? readmit : drain)(shown, button));
  return {
    element: button,
    show(member) {
      shown = member;
      setText(
          button,
          member.state === "quarantined"                     ? "Readmit" :
              member.draining || member.state === "draining" ? "Draining" :
                                                               "Drain");
      setAttribute(button, "aria-label", `${button.textContent} ${member.id}`);
      button.disabled = button.textContent === "Draining";
    }
  };
}

const numberColumn = (name, title, value, width, text = count) =>
    textColumn(name, title, (member) => text(value(member)), {width, align: "end", sort: value});
const speed = (member) => (member.seats ?? []).reduce((sum, seat) => sum + (seat.speed ?? 0), 0);
const used = (member) => (member.seats ?? []).reduce((sum, seat) => sum + (seat.executors ?? 0), 0);

const common = {
  name: () => partColumn("id", "Id", nameCell, {sort: (member) => member.id}),
  state: () => partColumn("state", "State", stateCell, {width: "112px", sort: (member) => member.state}),
  since: () => textColumn(
      "since", "Joined", (member) => (member.joined_unix_ms ? age(member.joined_unix_ms, now()) : NONE),
      {width: "84px", align: "end", sort: (member) => -(member.joined_unix_ms ?? 0)}),
  action: () => partColumn("action", "", actionCell, {width: "92px", align: "end"}),
};

const serverColumns = () =>
    [common.name(), common.state(),
     textColumn("address", "Address", (member) => member.address ?? NONE, {width: "170px"}),
     partColumn(
         "bytes", "Weights",
         () => {
           const load = bar();
           return {
             element: load.element,
             show: (member) => load.show(
                 (member.bytes ?? 0) /
                     (member.memory_bytes || Math.max(1, ...membersOf("server").map((one) => one.bytes ?? 0))),
                 `${bytes(member.bytes ?? 0)}${member.memory_bytes ? ` / ${bytes(member.memory_bytes)}` : ""}`)
           };
         },
         {width: "232px", sort: (member) => member.bytes ?? 0}),
     numberColumn("blocks", "Blocks", (member) => member.blocks ?? 0, "76px"),
     numberColumn("runs", "Runs", (member) => member.runs ?? 0, "64px"), common.since(), common.action()];

const workerColumns = () =>
    [common.name(), common.state(), textColumn("device", "Device", (member) => member.device ?? NONE, {width: "96px"}),
     partColumn(
         "load", "Executors",
         () => {
           const load = bar();
           return {
             element: load.element,
             show: (member) => load.show(
                 member.executors ? used(member) / member.executors : 0,
                 `${count(used(member))} / ${count(member.executors ?? 0)}`)
           };
         },
         {width: "140px", sort: used}),
     partColumn("runs", "Runs", seatsCell, {width: "200px"}),
     numberColumn("speed", "Microbatches/s", speed, "108px", (value) => (value ? number(value) : NONE)),
     numberColumn(
         "received", "Received", (member) => member.received_bytes ?? 0, "88px",
         (value) => (value ? bytes(value) : NONE)),
     numberColumn("refusals", "Refused", (member) => member.refusals ?? 0, "72px"),
     partColumn("reach", "Reach", reachCell, {width: "152px", sort: (member) => member.unreached ?? 0}), common.since(),
     common.action()];

export function mount(root) {
  const options = {
    key: (member) => member.id,
    rowHeight: 41,
    describe: (member) => `${member.role} ${member.id}, ${member.state}`
  };
  const servers = new LongTable(serverColumns(), {...options, label: "Servers"}),
        workers = new LongTable(workerColumns(), {...options, label: "Workers"});
  const noServers = empty(
            "No server has joined.", "weir-server --role=parameters --coordinator HOST:7070 --store file:///srv/weir"),
        noWorkers = empty("No worker has joined.", "weir-worker --coordinator HOST:7070 --data-root /srv/data");
  const sums = {servers: h("span", {class: "dim"}), workers: h("span", {class: "dim"})};
  root.append(
      h("div", {class: "column members-view"}, panel("Servers", sums.servers, servers.element, noServers),
        panel("Workers", sums.workers, workers.element, noWorkers)));
  return {
    title: "Members",
    table: workers,
    update() {
      for (const [name, table, none, role] of [
               ["servers", servers, noServers, "server"], ["workers", workers, noWorkers, "worker"]]) {
        const members = membersOf(role);
        table.show(members);
        table.element.hidden = members.length === 0;
        none.hidden = members.length > 0;
        setText(
            sums[name],
            role === "server" ?
                `${count(members.length)}, ${bytes(members.reduce((sum, one) => sum + (one.bytes ?? 0), 0))}` :
                `${count(members.length)}, ${
                    plural(members.reduce((sum, one) => sum + (one.executors ?? 0), 0), "executor")}`);
      }
    },
    close() {
      servers.close();
      workers.close();
    },
  };
}
