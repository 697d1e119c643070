/* What several views show alike: states, progress, links to runs, actions on a run. */
import {post} from "./api.js";
import {ask, change, confirm} from "./dialog.js";
import {h, setAttribute, setText} from "./dom.js";
import {STATES, count} from "./format.js";
import {refresh} from "./store.js";

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

const asks = {
  cancel: {
    title: "Cancel this run?",
    yes: "Cancel run",
    text: (run) => `${run} ends at once. Its checkpoints stay, and resuming takes it up again.`
  },
  stop: {
    title: "Stop this run?",
    yes: "Stop run",
    text: (run) => `${run} ends a few steps from now, with its result kept, as if that were its last step.`
  },
};

/** Pause, resume, stop or cancel of a run; the last two ask first. */
export async function actOnRun(action, run, button) {
  const question = asks[action];
  if (question && !(await confirm({...question, text: question.text(run)}))) return;
  await change(button, () => post(action, {run}), `${run}: ${action} is on its way`);
  refresh();
}

export async function setPriority(run, priority, button) {
  const value = await ask({
    title: "Priority",
    label: "Priority",
    value: String(priority ?? 0),
    yes: "Set",
    text: `Runs with a higher priority are given workers first. ${run} has ${priority ?? 0}.`
  });
  if (value === null) return;
  await change(
      button, () => post("set", {run, settings: [`priority=${value.trim()}`]}), `${run}: priority ${value.trim()}`);
  refresh();
}

export async function drain(member, button) {
  const isServer = member.role === "server";
  const isSure = await confirm({
    title: `Drain this ${member.role}?`,
    yes: "Drain",
    text: isServer ?
        `The blocks of ${
            member
                .id} move to other servers, and it is given no more. It cannot be taken back: start it again instead.` :
        `${member.id} hands over its work and is given no more. It cannot be taken back: start it again instead.`
  });
  if (!isSure) return;
  await change(
      button, () => post(isServer ? "drain_server" : "drain_worker", {[member.role]: member.id}),
      `${member.id} is draining`);
  refresh();
}

export async function readmit(member, button) {
  await change(button, () => post("readmit", {worker: member.id}), `${member.id} is readmitted`);
  refresh();
}
