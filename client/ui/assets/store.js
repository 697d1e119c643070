/* What the cluster looks like, kept up to date by polling for what has changed. */
import {CallError, get} from "./api.js";

const POLL_MS = 1000;
const RETRY_MS_MAX = 8000;
const SAMPLES_MAX = 300; // ten minutes, one every two seconds

/** Runs and members by id, the fleet's sums, executors by run over time. `at` is the coordinator's clock. */
export const state = {
  runs: new Map(),
  members: new Map(),
  fleet: {},
  history: {times: [], executors: [], tracks: new Map()},
  cursor: 0,
  at: Date.now(),
  isLoaded: false,
  error: null,
  selected: new Set(),
  version: 0,
};

const listeners = new Set();
let timer = 0, failures = 0, isAsking = false;

export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  state.version++;
  for (const listener of listeners) listener();
}

function takeHistory(history, isWhole) {
  const known = state.history;
  if (isWhole) Object.assign(known, {times: [], executors: [], tracks: new Map()});
  const times = history?.unix_ms ?? [],
        tracks = new Map((history?.tracks ?? []).map((track) => [track.run, track.executors ?? []]));
  times.forEach((time, i) => {
    if (known.times.length && time <= known.times[known.times.length - 1]) return;
    for (const run of tracks.keys())
      if (!known.tracks.has(run)) known.tracks.set(run, new Array(known.times.length).fill(0));
    known.times.push(time);
    known.executors.push(history.executors?.[i] ?? 0);
    for (const [run, values] of known.tracks) values.push(tracks.get(run)?.[i] ?? 0);
  });
  const over = known.times.length - SAMPLES_MAX;
  if (over > 0) {
    known.times.splice(0, over);
    known.executors.splice(0, over);
    for (const values of known.tracks.values()) values.splice(0, over);
  }
  for (const [run, values] of known.tracks)
    if (!values.some((value) => value > 0)) known.tracks.delete(run);
}

function take(answer) {
  const isWhole = answer.is_whole === true;
  if (isWhole) {
    state.runs.clear();
    state.members.clear();
  }
  for (const run of answer.runs ?? []) state.runs.set(run.run, run);
  for (const member of answer.members ?? []) state.members.set(member.id, member);
  for (const id of answer.gone ?? []) {
    state.runs.delete(id);
    state.members.delete(id);
    state.selected.delete(id);
  }
  state.fleet = answer.fleet ?? {};
  state.at = answer.now_unix_ms ?? Date.now();
  takeHistory(answer.history, isWhole);
  state.cursor = answer.cursor ?? 0;
  state.isLoaded = true;
}

async function poll() {
  if (isAsking) return;
  isAsking = true;
  clearTimeout(timer);
  let wait = POLL_MS;
  try {
    const answer = await get("overview", {since: state.cursor});
    take(answer);
    state.error = null;
    failures = 0;
    if (answer.has_more) wait = 0;
  } catch (failure) {
    if (!(failure instanceof CallError)) console.error(failure);
    state.error = failure;
    wait = Math.min(RETRY_MS_MAX, POLL_MS * 2 ** failures++);
  }
  isAsking = false;
  changed();
  if (document.visibilityState === "visible" && state.error?.status !== 401) timer = setTimeout(poll, wait);
}

/** A tab that nobody sees asks nothing. */
export function start() {
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && poll());
  poll();
}

/** At once: after a change that was asked for here. */
export const refresh = () => poll();

export function select(run, isSelected) {
  if (isSelected)
    state.selected.add(run);
  else
    state.selected.delete(run);
  changed();
}

export const runsOf = (filter) => [...state.runs.values()].filter(filter);
export const membersOf = (role) => [...state.members.values()]
                                       .filter((member) => member.role === role)
                                       .sort((a, b) => a.id.localeCompare(b.id, "en", {numeric: true}));

/** The time now by the coordinator's clock. */
export const now = () => state.at;
