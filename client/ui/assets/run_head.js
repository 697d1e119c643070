/* The top of a run's view: how far it is, and what can be done with it. */
import {actOnRun, forkRun, raiseHold, setLimits, showExport} from "./actions.js";
import {bar, runLink, stateMark, stepText, sweepLink} from "./cells.js";
import {h, keep, setAttribute, setText} from "./dom.js";
import {isOver, tick} from "./format.js";
import {select, state} from "./store.js";

const canResume = (of) => ["paused", "failed", "cancelled"].includes(of.state);
const isLive = (of) => !isOver(of.state) && of.state !== "paused";

/** What a run may have done to it: a button each, and a key for what ends nothing. when(what GetRun says): it makes sense
    now. */
const ACTIONS = [
  {name: "resume", title: "Resume", key: "p", when: canResume},
  {name: "pause", title: "Pause", key: "p", when: (of) => isLive(of) && of.state !== "finishing"}, {
    name: "hold",
    title: "Raise hold",
    when: (of) => isLive(of) && of.hold > 0,
    act: ({run, info}, button) => raiseHold(run, info(), button)
  },
  {
    name: "limits",
    title: "Limits",
    key: "l",
    when: (of) => isLive(of) && Boolean(of.spec),
    act: ({run, info}, button) => setLimits(run, info(), button)
  },
  {
    name: "fork",
    title: "Fork",
    key: "f",
    when: () => true,
    act: ({run, checkpoints}, button) => forkRun(run, checkpoints.all, undefined, button)
  },
  {name: "export", title: "Export", key: "e", when: (of) => of.checkpoints > 0, act: ({run}) => showExport(run)},
  {name: "stop", title: "Stop", when: (of) => isLive(of) && of.state !== "queued"},
  {name: "cancel", title: "Cancel", when: (of) => !isOver(of.state), isBad: true}
];

/** view: {run, info(), checkpoints}. */
function makeActions(view) {
  const buttons = ACTIONS.map(
      (action) =>
          h("button", {
            type: "button",
            hidden: true,
            class: action.isBad ? "danger-text" : "",
            title: action.key ? `${action.title} (${action.key})` : undefined,
            onclick: (event) =>
                (action.act ?? ((of, from) => actOnRun(action.name, of.run, from)))(view, event.currentTarget)
          },
            action.title));
  return {
    element: h("div", {class: "actions"}, buttons),
    show(of) {
      ACTIONS.forEach((action, i) => {
        buttons[i].hidden = !of || !action.when(of);
      });
    },
    /** By its key; false: no such action makes sense now. */
    press(key) {
      const i = ACTIONS.findIndex((action, at) => action.key === key && !buttons[at].hidden);
      buttons[i]?.click();
      return i >= 0;
    }
  };
}

export function makeHead(view) {
  const {run} = view, mark = stateMark(), progress = bar(), message = h("p", {class: "run-says"}),
        actions = makeActions(view), links = h("span", {class: "run-links"});
  const chosen =
      h("label", {class: "check"},
        h("input", {type: "checkbox", onchange: (event) => select(run, event.target.checked)}), "Compare");
  return {
    element:
        h("header", {class: "run-head"},
          h("div", {class: "run-title"}, h("a", {href: "#/runs", class: "up"}, "Runs"), h("h1", {}, run), mark.element,
            links),
          chosen, actions.element, h("div", {class: "run-progress"}, progress.element), message),
    press: (key) => actions.press(key),
    /** of: its row of the overview with what GetRun says. */
    show(of) {
      chosen.firstElementChild.checked = state.selected.has(run);
      mark.show(of?.state);
      progress.show(
          of?.steps ? (of.step ?? 0) / of.steps : 0,
          of ? `step ${stepText(of)}${of.epochs ? `, epoch ${(of.epoch ?? 0).toFixed(2)} of ${tick(of.epochs)}` : ""}` :
               "");
      setText(message, of?.message ?? of?.store_message ?? "");
      message.hidden = !message.textContent;
      setAttribute(message, "data-bad", of?.state === "failed" || of?.store_message ? "yes" : null);
      keep(
          links,
          [
            of?.parent && {text: `fork of ${of.parent}`, href: runLink(of.parent)},
            of?.sweep && {text: `trial ${of.trial ?? 0} of ${of.sweep}`, href: sweepLink(of.sweep)}
          ].filter(Boolean),
          (link) => link.href, (link) => h("a", {href: link.href}, link.text));
      actions.show(of);
    }
  };
}
