/* The dashboard's calls. The session id came in the link, and goes as a header that no other page can send. */

const KEY = "weir.session";

function takeSession() {
  const given = /^#session=([0-9a-f]+)/.exec(location.hash);
  if (!given) return localStorage.getItem(KEY) ?? "";
  localStorage.setItem(KEY, given[1]);
  history.replaceState(null, "", location.pathname + "#/fleet"); // so that it stays out of what people copy
  return given[1];
}

const session = takeSession();

/** An answer that is an error: message is for people. */
export class CallError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function answerOf(request) {
  let response;
  try {
    response = await request;
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new CallError(0, "`weir ui` does not answer: it may have ended");
  }
  const isJson = response.headers.get("Content-Type") === "application/json";
  const body = isJson ? await response.json() : {error: (await response.text()).trim()};
  if (!response.ok) throw new CallError(response.status, body.error ?? `status ${response.status}`);
  return body;
}

/** get("series", {run, points: 800}) */
export function get(name, query = {}, signal = undefined) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined)).toString();
  return answerOf(fetch(`api/${name}${text ? "?" + text : ""}`, {headers: {"Weir-Session": session}, signal}));
}

export const post = (name, body) => answerOf(fetch(`api/${name}`, {
  method: "POST",
  headers: {"Weir-Session": session, "Content-Type": "application/json"},
  body: JSON.stringify(body),
}));
