/* Elements. Text only ever goes in as text. */

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on"))
      element.addEventListener(name.slice(2), value);
    else if (name === "style")
      for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9)
                     .filter((child) => child !== null && child !== undefined && child !== false)
                     .map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

/** An element: h("a", {href: "#/runs", onclick: f}, "text", other elements). */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** The same of SVG. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Sets a text where it is another one, so that what reads the page aloud is not disturbed. */
export function setText(element, text) {
  const wanted = text === null || text === undefined ? "" : String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false)
    element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value))
    element.setAttribute(name, value);
}

/** Makes the children of parent those of items, each made once by its key: make(item) returns an element, which change(element,
    item) brings up to date. What has the focus keeps it. */
export function keep(parent, items, key, make, change) {
  const known = parent.weirKept ?? (parent.weirKept = new Map());
  const now = new Map();
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    const element = known.get(name) ?? make(item);
    now.set(name, element);
    change?.(element, item);
    if (element === at)
      at = at.nextElementSibling;
    else
      parent.insertBefore(element, at);
  }
  for (const [name, element] of known)
    if (!now.has(name)) element.remove();
  parent.weirKept = now;
}

/** What cannot be seen is said: changes that a reader of the screen would miss. */
export function say(text) { setText(document.getElementById("said"), text); }

/** A command that can be copied. */
export function command(text) {
  const code = h("code", {}, text);
  const button = h("button", {class: "quiet small", type: "button", "aria-label": `Copy: ${text}`}, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    setText(button, "Copied");
    setTimeout(() => setText(button, "Copy"), 1500);
  });
  return h("span", {class: "command"}, code, button);
}

/** What is shown where there is nothing yet: what would be here, and the command that fills it. */
export const empty = (text, ...commands) =>
    h("div", {class: "empty"}, h("p", {}, text), commands.map((line) => h("p", {}, command(line))));

/** A part of a view with a title; more goes to the right of the title. */
export const panel = (title, more, ...children) =>
    h("section", {class: "panel", "aria-label": title},
      h("header", {class: "panel-head"}, h("h2", {}, title), h("div", {class: "panel-more"}, more ?? "")), children);
