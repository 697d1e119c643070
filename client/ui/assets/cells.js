/* What several views show alike: states, progress, links to runs. */
import {h, setAttribute, setText} from "./dom.js";
import {STATES, count} from "./format.js";

export const runLink = (run) => `#/runs/${encodeURIComponent(run)}`;
export const sweepLink = (sweep) => `#/sweeps/${encodeURIComponent(sweep)}`;

/** A dot and a word. */
export function stateMark() {
  const dot = h("span", {class: "dot", "aria-hidden": "true"}), word = h("span", {});
  const element = h("span", {class: "state"}, dot, word);
  return {
    element,
    show(state) {
      setText(word, state ?? "");
      setAttribute(element, "data-kind", STATES[state] ?? "waits");
    }
  };
}

/** A bar with what it says beside it. */
export function bar() {
  const inside = h("span", {class: "bar-fill"}), frame = h("span", {class: "bar", "aria-hidden": "true"}, inside);
  const text = h("span", {class: "bar-text"});
  const element = h("span", {class: "bar-cell"}, frame, text);
  return {
    element,
    show(share, words, isBad = false) {
      inside.style.width = `${Math.round(1000 * Math.min(1, Math.max(0, share || 0))) / 10}%`;
      setAttribute(frame, "data-bad", isBad ? "yes" : null);
      setText(text, words);
    }
  };
}

/** A column whose cells have parts of their own: make() returns {element, show(row)}. */
export function partColumn(name, title, make, more = {}) {
  const parts = new WeakMap();
  return {
    name,
    title,
    ...more,
    make: () => {
      const part = make();
      parts.set(part.element, part);
      return part.element;
    },
    change: (cell, row) => parts.get(cell.firstElementChild).show(row)
  };
}

export const stepText = (run) => (run.steps ? `${count(run.step ?? 0)} / ${count(run.steps)}` : count(run.step ?? 0));

/** A line that waits to be filled: a label and a value. */
export function fact(label, {isWide = false, title} = {}) {
  const value = h("dd", {}),
        element = h("div", {class: isWide ? "fact wide" : "fact", title}, h("dt", {}, label), value);
  return {element, value, show: (text) => setText(value, text)};
}
