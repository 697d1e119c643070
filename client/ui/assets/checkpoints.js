/* The checkpoints of a run: what each is worth, and what can be made of it. */
import {forkRun, resumeFrom, showExport} from "./actions.js";
import {get} from "./api.js";
import {empty, h, keep, setAttribute, setText} from "./dom.js";
import {age, bytes, count, metric, number} from "./format.js";
import {now} from "./store.js";

const SHOWN_MAX = 50;

/** What was known of that version: an evaluation's numbers, else the loss of the step before. */
function worth(checkpoint) {
  if (checkpoint.unreadable) return "a server could not load it";
  const of = [];
  if (Number.isFinite(checkpoint.accuracy)) of.push(`accuracy ${metric("accuracy", checkpoint.accuracy)}`);
  for (const {name, value} of checkpoint.metrics ?? [])
    if (of.length < 2 && Number.isFinite(value)) of.push(`${name.replaceAll("_", " ")} ${metric(name, value)}`);
  const loss = Number.isFinite(checkpoint.eval_loss) ? checkpoint.eval_loss : checkpoint.loss;
  if (of.length < 2 && Number.isFinite(loss)) of.push(`loss ${number(loss)}`);
  return of.join(", ");
}

function makeRow(run, all, canResume) {
  const step = h("span", {class: "checkpoint-step"}), facts = h("span", {class: "checkpoint-facts"}),
        since = h("span", {class: "checkpoint-facts"});
  let shown = {};
  const button = (text, act) =>
      h("button", {type: "button", class: "quiet small", onclick: (event) => act(shown.step ?? 0, event.currentTarget)},
        text);
  const resume = button("Resume", (at, from) => resumeFrom(run, at, from)),
        fork = button("Fork", (at, from) => forkRun(run, all(), at, from)),
        save = button("Export", (at) => showExport(run, at));
  return {
    element: h("li", {}, step, since, h("span", {class: "checkpoint-acts"}, resume, fork, save), facts),
    show(checkpoint) {
      shown = checkpoint;
      const at = count(checkpoint.step ?? 0);
      setText(step, `step ${at}`);
      setText(since, [
        checkpoint.committed_unix_ms && `${age(checkpoint.committed_unix_ms, now())} ago`,
        checkpoint.bytes && bytes(checkpoint.bytes)
      ].filter(Boolean).join(", "));
      setText(facts, worth(checkpoint));
      setAttribute(facts, "data-bad", checkpoint.unreadable ? "yes" : null);
      for (const [one, word] of [[resume, "Resume from"], [fork, "Fork from"], [save, "Export"]])
        setAttribute(one, "aria-label", `${word} step ${at}`);
      fork.hidden = save.hidden = Boolean(checkpoint.unreadable);
      resume.hidden = Boolean(checkpoint.unreadable) || !canResume();
    }
  };
}

export class Checkpoints {
  constructor(run) {
    Object.assign(this, {run, all: [], state: "", key: null, rows: new WeakMap()});
    this.list = h("ol", {class: "checkpoints"});
    this.none = empty("The first checkpoint is that of step 0, once members have loaded the model.");
    this.more = h("p", {class: "note", hidden: true});
    this.sum = h("span", {class: "dim"});
    this.element = h("div", {class: "scroll checkpoints-scroll"}, this.list, this.none, this.more);
  }

  /** info: what GetRun says. Asks only where there are others than before. */
  async refresh(info) {
    const key = `${info.checkpoints}:${info.checkpoint_step}:${info.state}`;
    this.state = info.state;
    if (key !== this.key) {
      const answer = await get("checkpoints", {run: this.run}).catch(() => null);
      if (answer) Object.assign(this, {key, all: answer.checkpoints ?? []});
    }
    this.draw();
  }

  draw() {
    const canResume = () => ["paused", "failed", "cancelled"].includes(this.state);
    const shown = this.all.slice(-SHOWN_MAX).reverse();
    this.none.hidden = shown.length > 0;
    this.more.hidden = shown.length === this.all.length;
    setText(this.more, `The newest ${SHOWN_MAX}; all of them: weir checkpoints ${this.run}`);
    setText(this.sum, this.all.length ? count(this.all.length) : "");
    keep(this.list, shown, (checkpoint) => `${checkpoint.step}:${checkpoint.incarnation}`, () => {
      const row = makeRow(this.run, () => this.all, canResume);
      this.rows.set(row.element, row);
      return row.element;
    }, (element, checkpoint) => this.rows.get(element).show(checkpoint));
  }
}
