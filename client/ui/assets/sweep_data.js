/* A sweep as its views need it: trials whose values are numbers or words, the best so far, rungs. */
import {get} from "./api.js";
import {count} from "./format.js";

const UNITS = {
  steps: "step",
  samples: "sample",
  epochs: "epoch"
};

/** All of it at first, then what its log has changed. */
export class SweepData {
  constructor(sweep) { Object.assign(this, {sweep, info: {}, trials: [], known: 0, isLoaded: false}); }

  async page(query) {
    const page = await get("sweep", {sweep: this.sweep, ...query});
    for (const trial of page.trials ?? []) this.trials[trial.number ?? 0] = trial;
    return page;
  }

  async refresh() {
    const query = this.isLoaded ? {only_changes: true, changed_from: this.known} : {};
    const first = await this.page(query);
    let next = this.isLoaded ? first.next_trial ?? 0 : (first.trials ?? []).length;
    for (let page = first; next && (this.isLoaded || ((page.trials ?? []).length && next < (first.begun ?? 0)));) {
      page = await this.page({...query, first_trial: next});
      next = this.isLoaded ? page.next_trial ?? 0 : next + (page.trials ?? []).length;
    }
    this.info = {...this.info, ...first, message: first.message, end: first.end, progress: first.progress};
    this.known = first.log_records ?? 0;
    this.isLoaded = true;
  }

  get objective() {
    const given = this.info.spec?.objective ?? this.info.spec?.objectives?.[0] ?? {};
    const metric = given.metric ?? "loss";
    return {metric, isMin: (given.goal ?? (/loss|perplexity|mae|mse|rmse/.test(metric) ? "min" : "max")) === "min"};
  }

  get rungs() { return this.info.spec?.schedule?.rungs ?? []; }

  /** What the scheduler counts. */
  get unit() { return UNITS[this.info.spec?.schedule?.unit] ?? "step"; }

  /** What a rung is called: where it lies. */
  rungName(rung) {
    const at = this.rungs[rung];
    return at === undefined ? `rung ${rung}` : `${this.unit} ${count(at)}`;
  }

  /** What all trials have been given to train, up to their next rungs; empty: without rungs nothing is counted. */
  get begun() { return this.rungs.length ? `${count(this.info.begun_steps ?? 0)} ${this.unit}s` : ""; }

  /** How many trials it has, and may have. A population is as large as its budget; forks come on top. */
  get size() {
    const begun = count(this.info.begun ?? 0), {budget, schedule} = this.info.spec ?? {};
    if (!budget?.trials) return begun;
    return schedule?.name === "pbt" ? `${begun}, population ${count(budget.trials)}` :
                                      `${begun} of ${count(budget.trials)}`;
  }

  /** The newest result of a trial; undefined: there is none. */
  result(trial) { return trial.results?.findLast((value) => Number.isFinite(value)); }

  /** Whether a is better than b. */
  beats(a, b) { return b === undefined || (a !== undefined && (this.objective.isMin ? a < b : a > b)); }

  /** What the searcher may choose: path, and either low, high, isLog or choices. */
  get dimensions() {
    return (this.info.spec?.space ?? []).map((one) => {
      const range = one.log ?? one.uniform;
      if (range?.length === 2) return {path: one.path, low: range[0], high: range[1], isLog: Boolean(one.log)};
      return {path: one.path, choices: (one.choice ?? one.files ?? []).map(String)};
    });
  }

  value(trial, path) { return trial.values?.find((value) => value.path === path)?.value; }
}

export const shortPath = (path) => path.split(".").slice(-1)[0];
