/* What happened to a run, newest first, by kind. */
import {h, keep, setAttribute} from "./dom.js";
import {count} from "./format.js";

const SHOWN = [
  {value: "", text: "All", has: () => true},
  {value: "trouble", text: "Faults, roll-backs", has: (kind) => kind === "fault" || kind === "rollback"},
  {value: "checkpoint", text: "Checkpoints", has: (kind) => kind === "checkpoint"},
  {value: "view", text: "Views", has: (kind) => kind === "view"},
  {value: "note", text: "Notes, states", has: (kind) => kind === "note" || kind === "state"},
];
const NAMES = {
  rollback: "roll-back"
};

export class Events {
  /** choose(index) is called where one is clicked; onKind() where other kinds are to be shown. */
  constructor(choose, onKind) {
    Object.assign(this, {choose, events: []});
    this.kind =
        h("select", {"aria-label": "Kinds of events", onchange: () => onKind()},
          SHOWN.map(({value, text}) => h("option", {value}, text)));
    this.list = h("ol", {class: "events"});
    this.none = h("p", {class: "empty"}, "Views, faults, roll-backs and checkpoints appear here as they happen.");
    this.element = h("div", {class: "scroll events-scroll"}, this.list, this.none);
    this.head = [this.kind, h("span", {class: "dim"}, h("kbd", {}, "["), " ", h("kbd", {}, "]"))];
  }

  /** Indices of those that are shown, oldest first. */
  shown() {
    const {has} = SHOWN.find(({value}) => value === this.kind.value);
    return [...this.events.keys()].filter((index) => has(this.events[index].kind));
  }

  show(events, chosen) {
    this.events = events;
    const shown = this.shown();
    this.none.hidden = shown.length > 0;
    keep(
        this.list, shown.reverse(),
        (index) => `${index}:${events[index].kind}:${events[index].step}:${events[index].message}`, (index) => {
          const event = events[index];
          return h(
              "li", {"data-kind": event.kind, onclick: () => this.choose(index)},
              h("span", {class: "event-step"}, count(event.step ?? 0)),
              h("span", {class: "event-kind"}, NAMES[event.kind] ?? event.kind ?? ""),
              h("span", {class: "event-text"}, event.message ?? ""));
        }, (element, index) => setAttribute(element, "aria-current", index === chosen ? "true" : null));
  }

  /** The index that is by places after the chosen one among those that are shown. */
  next(chosen, by) {
    const shown = this.shown();
    if (chosen < 0) return by > 0 ? shown[0] : shown[shown.length - 1];
    const place = by > 0 ? shown.find((index) => index > chosen) : shown.findLast((index) => index < chosen);
    return place ?? chosen;
  }

  scrollToChosen() { this.list.querySelector("[aria-current]")?.scrollIntoView({block: "nearest"}); }
}
