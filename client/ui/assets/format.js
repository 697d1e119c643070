/* Numbers, times and states as people read them. */

const known = (value) => typeof value === "number" && Number.isFinite(value);
const groups = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});

export const NONE = "–";

export const count = (value) => (known(value) ? groups.format(value) : NONE);

export function short(value) {
  if (!known(value)) return NONE;
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (Math.abs(value) >= size) {
      const shown = value / (letter === "k" ? 1e3 : size);
      return shown.toFixed(shown < 10 ? 2 : shown < 100 ? 1 : 0) + letter;
    }
  return groups.format(value);
}

/** Four digits that count: 0.2871, 12.34, 1.2e-5. */
export function number(value) {
  if (!known(value)) return NONE;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2);
  if (size >= 1000) return groups.format(value);
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 4 : 5);
}

/** A number on an axis, as short as it can be. */
export function tick(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return value.toExponential(1).replace(".0e", "e");
  return groups.format(value) === String(value) ? groups.format(value) :
      size >= 1000                              ? groups.format(value) :
                                                  String(Number(value.toPrecision(3)));
}

export const percentTick = (share) => `${Number((100 * share).toFixed(1))} %`;

export function bytes(value) {
  if (!known(value)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** 41 s, 3:05, 1:02:03, 2 d 4 h. */
export function duration(seconds) {
  if (!known(seconds) || seconds < 0) return NONE;
  const whole = Math.round(seconds);
  const two = (value) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)}`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

export const age = (unixMs, nowMs) => (unixMs ? duration(Math.max(0, (nowMs - unixMs) / 1000)) : NONE);

export const percent = (share) => (known(share) ? `${(100 * share).toFixed(2)} %` : NONE);

/** Metrics that are shares, and so shown as percentages. */
export const isShare = (name) => /^(accuracy|top\d|.*_accuracy|f1|precision|recall)/.test(name ?? "");

/** A metric's value. */
export const metric = (name, value) =>
    (isShare(name) && known(value) && Math.abs(value) <= 1 ? percent(value) : number(value));

/** The same on an axis. */
export const metricTick = (name, value) => (isShare(name) ? percentTick(value) : tick(value));

/** The short end of an id that tells runs of one name apart. */
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

/** How a state looks: its dot's class. */
export const STATES = {
  running: "live",
  loading: "begins",
  finishing: "begins",
  queued: "waits",
  held: "rests",
  paused: "rests",
  done: "over",
  stopped: "over",
  cancelled: "dropped",
  failed: "bad",
  idle: "waits",
  ready: "live",
  following: "begins",
  draining: "rests",
  refused: "bad",
  quarantined: "bad",
  "cut-off": "bad",
  "left-out": "bad",
  busy: "live",
  waiting: "rests",
};

export const isOver = (state) => ["done", "failed", "cancelled", "stopped"].includes(state);

const ORDER = ["running", "finishing", "loading", "queued", "held", "paused", "failed", "done", "stopped", "cancelled"];
export const stateRank = (state) => ORDER.indexOf(state);
