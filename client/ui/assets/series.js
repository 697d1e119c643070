/* The curves and events of a run, kept up to date by asking for what has come since. */
import {get} from "./api.js";

const POINTS = 800, POINTS_MAX = 1600;

/** Joins what came from step `since` on to a curve. */
function join(known, fresh, since) {
  if (!known) return fresh;
  const cut = known.steps.findIndex((step) => step >= since), end = cut < 0 ? known.steps.length : cut;
  const filled = (curve, name) => (curve[name]?.length ? curve[name] : curve.mean);
  const hasBand = Boolean(known.min?.length || fresh.min?.length);
  const joined = (name) => [...filled(known, name).slice(0, end), ...filled(fresh, name)];
  return {
    metric: known.metric,
    steps: [...known.steps.slice(0, end), ...fresh.steps],
    mean: joined("mean"),
    min: hasBand ? joined("min") : [],
    max: hasBand ? joined("max") : []
  };
}

export class RunSeries {
  constructor(run, metrics) {
    Object.assign(
        this, {run, metrics, curves: new Map(), events: [], step: 0, incarnation: -1, error: null, isLoaded: false});
  }

  take(answer, since) {
    if (since === 0) {
      this.curves.clear();
      this.events = [];
    }
    for (const curve of answer.curves ?? []) {
      const fresh = {steps: [], mean: [], ...curve};
      this.curves.set(curve.metric, since ? join(this.curves.get(curve.metric), fresh, since) : fresh);
    }
    const kept = since ? this.events.filter((event) => (event.step ?? 0) < since) : [];
    this.events = [...kept, ...(answer.events ?? []).filter((event) => !since || (event.step ?? 0) >= since)];
    this.step = answer.step ?? 0;
    this.steps = answer.steps ?? 0;
    this.incarnation = answer.incarnation ?? 0;
    this.isLoaded = true;
  }

  /** Asks for what is new. True: there is something. */
  async refresh() {
    const isFull = [...this.curves.values()].some((curve) => curve.steps.length > POINTS_MAX);
    const since = isFull || !this.isLoaded ? 0 : Math.max(0, this.step - 1);
    const before = this.incarnation;
    try {
      const answer = await get("series", {run: this.run, points: POINTS, since, metrics: this.metrics});
      this.error = null;
      if (since && (answer.incarnation ?? 0) !== before) {
        this.isLoaded = false; // steps were taken back
        return this.refresh();
      }
      this.take(answer, since);
      return true;
    } catch (failure) {
      this.error = failure;
      return false;
    }
  }

  curve(metric) { return this.curves.get(metric); }
}

/** How far back a smoothed point looks, in parts of the steps that are shown. */
export const SMOOTHINGS = [["0", "As it is"], ["0.004", "Smooth"], ["0.015", "Smoother"], ["0.05", "Smoothest"]];

/** As a mean of those before that fades over so many steps, however many of them a point stands for: curves with points of
    different widths look alike. 0 leaves a curve as it is. */
export function smooth(values, steps, width) {
  if (!width) return values;
  let mean = 0, sum = 0, before = steps[0];
  return values.map((value, i) => {
    if (!Number.isFinite(value)) return value;
    const weight = Math.exp(-Math.max(1, steps[i] - before) / width);
    before = steps[i];
    mean = weight * mean + (1 - weight) * value;
    sum = weight * sum + (1 - weight);
    return mean / sum;
  });
}
