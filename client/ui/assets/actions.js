/* What a page may have done: to runs, their checkpoints, sweeps and members. What ends or drains something asks first. */
import {post} from "./api.js";
import {runLink} from "./cells.js";
import {ask, change, confirm, showCommands} from "./dialog.js";
import {count} from "./format.js";
import {go} from "./route.js";
import {refresh} from "./store.js";

const questions = {
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
  const question = questions[action];
  if (question && !(await confirm({...question, text: question.text(run)}))) return;
  await change(button, () => post(action, {run}), `${run}: ${action} is on its way`);
  refresh();
}

const nameOf = (run) => run.replace(/-[0-9a-f]{6}$/, "");

/** Lines of PATH=VALUE that are not empty. */
const settingsOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

async function setKeys(run, settings, button) {
  if (!settings.length) return;
  await change(button, () => post("set", {run, settings}), `${run}: ${settings.join(", ")}`);
  refresh();
}

/** Its priority and its share of the workers. info: what GetRun says of it. */
export async function setLimits(run, info, button) {
  const {min = 1, max, weight = 1} = info.spec?.workers ?? {};
  const now = {priority: info.priority ?? 0, "workers.min": min, "workers.max": max ?? "", "workers.weight": weight};
  const values = await ask({
    title: "Limits",
    yes: "Set",
    text: `What ${run} is given of the workers. None of it changes the result.`,
    fields: [
      {name: "priority", label: "Priority: runs with a higher one are given workers first", value: now.priority},
      {name: "workers.min", label: "Workers at least, before others have more than theirs", value: now["workers.min"]},
      {name: "workers.max", label: "Workers at most", hint: "no limit", value: now["workers.max"]},
      {name: "workers.weight", label: "Weight: its part of what is left", value: now["workers.weight"]}
    ]
  });
  if (!values) return;
  await setKeys(
      run,
      Object.entries(values)
          .filter(([key, value]) => value !== String(now[key]))
          .map(([key, value]) => `${key}=${value || "null"}`),
      button);
}

/** A run that is held goes on to a later version, or to its end. */
export async function raiseHold(run, info, button) {
  const values = await ask({
    title: "Raise the hold",
    yes: "Raise",
    text: `${run} is held at step ${count(info.hold)}. A hold is only ever raised.`,
    fields: [{name: "hold", label: "Held at step", hint: `${count(info.steps ?? 0)}, its end`}]
  });
  if (values) await setKeys(run, [`train.hold=${values.hold.replaceAll(",", "") || "null"}`], button);
}

const byStep = (checkpoint) => ({value: String(checkpoint.step ?? 0), text: `step ${count(checkpoint.step ?? 0)}`});

/** A new run from a checkpoint of another; the page goes there. step: of a checkpoint, or undefined. */
export async function forkRun(run, checkpoints, step, button) {
  const steps = checkpoints.filter((one) => !one.unreadable).map(byStep).reverse();
  const values = await ask({
    title: "Fork this run",
    yes: "Fork",
    text: `A new run goes on from a checkpoint of ${run}, optimizer state included.`,
    fields: [
      {name: "settings", label: "What is to differ, a key a line", hint: "train.optimizer.lr=0.01", isLong: true}, {
        name: "step",
        label: "From",
        options: [{value: "", text: "the newest checkpoint"}, ...steps],
        value: step === undefined ? "" : String(step)
      },
      {name: "name", label: "Name", hint: nameOf(run)}
    ]
  });
  if (!values) return;
  const from = values.step ? {has_step: true, step: Number(values.step)} : {};
  const answer = await change(
      button, () => post("fork", {run, ...from, settings: settingsOf(values.settings), name: values.name}),
      (fork) => [`${fork.run} goes on from step ${count(fork.step ?? 0)} of ${run}`, ...(fork.notes ?? [])].join("; "));
  if (!answer) return;
  refresh();
  go(runLink(answer.run));
}

/** From a checkpoint that is not the newest: what came after it is computed anew. */
export async function resumeFrom(run, step, button) {
  const isSure = await confirm({
    title: `Resume from step ${count(step)}?`,
    yes: "Resume",
    text: `${run} goes on from there. Its later checkpoints are dropped, and their steps computed anew.`
  });
  if (!isSure) return;
  await change(button, () => post("resume", {run, has_step: true, step}), `${run}: resume is on its way`);
  refresh();
}

export const showExport = (run, step) => showCommands({
  title: step === undefined ? "Export the weights" : `Export the weights of step ${count(step)}`,
  text: "As the submitted model with them, or as tensors by name:",
  commands: ["onnx", "safetensors"].map(
      (kind) => `weir export ${run}${step === undefined ? "" : ` --step ${step}`} -o ${nameOf(run)}${
          step === undefined ? "" : `-${step}`}.${kind}`)
});

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

const BUDGETS =
    [["trials", "Trials that begin"], ["steps", "Steps of all trials together"], ["seconds", "Seconds, from now on"]];

/** More of each budget that a sweep has. spec: the sweep's. */
export async function extendSweep(sweep, spec, button) {
  const has = BUDGETS.filter(([name]) => spec.budget?.[name] !== undefined);
  const values = await ask({
    title: "Extend this sweep",
    yes: "Extend",
    text: `${sweep} goes on within a larger budget, from what its trials have come to.`,
    fields: has.map(([name, label]) => ({name, label: `${label} (now ${count(spec.budget[name])})`, value: ""}))
  });
  if (!values) return false;
  const budget = Object.fromEntries(Object.entries(values).filter(([, value]) => value));
  const answer = await change(button, () => post("extend_sweep", {sweep, budget}), `${sweep} is extended`);
  return answer !== null;
}

export async function stopSweep(sweep, button) {
  const isSure = await confirm({
    title: "Stop this sweep?",
    text: `The trials of ${sweep} that are under way end. Extending it later goes on.`,
    yes: "Stop sweep"
  });
  if (isSure) await change(button, () => post("stop_sweep", {sweep}), `${sweep} ends`);
}
