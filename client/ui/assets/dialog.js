/* What asks, and what tells: dialogs that give the focus back, and lines at the edge. */
import {command, h} from "./dom.js";

/** Shows a dialog; resolves with its return value once it is closed, the focus where it was, as dialogs of browsers do. */
export function show(content, {label}) {
  const dialog = h("dialog", {"aria-label": label}, content);
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("input[autofocus]")?.select(); // what is typed takes its place
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    const value = dialog.returnValue;
    dialog.remove();
    resolve(value);
  }));
}

/** Asks before what cannot be undone. True: yes. The focus begins on what changes nothing. */
export async function confirm({title, text, yes}) {
  const no = h("button", {type: "submit", value: "no", autofocus: true}, "Keep it");
  const form =
      h("form", {method: "dialog", class: "ask"}, h("h2", {}, title), h("p", {}, text),
        h("div", {class: "buttons"}, no, h("button", {type: "submit", value: "yes", class: "danger"}, yes)));
  return (await show(form, {label: title})) === "yes";
}

function makeField({name, label, hint, value = "", options, isLong}, isFirst) {
  const common = {name, autofocus: isFirst, autocomplete: "off", spellcheck: "false"};
  const input = options ?
      h("select", common,
        options.map((one) => h("option", {value: one.value, selected: one.value === value}, one.text))) :
      isLong ? h("textarea", {...common, rows: 3, placeholder: hint}, value) :
               h("input", {...common, type: "text", value, placeholder: hint});
  return {input, element: h("label", {class: "field"}, h("span", {}, label), input)};
}

/** Asks for values, a field each: {name, label, hint, value, options: [{value, text}], isLong}. Resolves with them by name,
    without the space around them; null: nothing is to be done. */
export async function ask({title, text, fields, yes}) {
  const made = fields.map((field, i) => makeField(field, i === 0));
  const form =
      h("form", {method: "dialog", class: "ask"}, h("h2", {}, title), h("p", {}, text),
        made.map((field) => field.element),
        h("div", {class: "buttons"}, h("button", {type: "submit", value: "no", formnovalidate: true}, "Leave it"),
          h("button", {type: "submit", value: "yes", class: "primary"}, yes)));
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    form.closest("dialog").close("yes");
  });
  if ((await show(form, {label: title})) !== "yes") return null;
  return Object.fromEntries(made.map(({input}) => [input.name, input.value.trim()]));
}

/** Commands that do what a page cannot, each to be copied. */
export function showCommands({title, text, commands}) {
  const close = h("button", {type: "submit", value: "", autofocus: true}, "Close");
  return show(
      h("form", {method: "dialog", class: "ask"}, h("h2", {}, title), h("p", {}, text),
        commands.map((line) => h("div", {}, command(line))), h("div", {class: "buttons"}, close)),
      {label: title});
}

export function tell(text, isBad = false) {
  const line = h("div", {class: isBad ? "toast bad" : "toast"}, h("span", {}, text));
  const close = h("button", {class: "quiet icon", type: "button", "aria-label": "Dismiss"}, "×");
  close.addEventListener("click", () => line.remove());
  line.append(close);
  document.getElementById("toasts").append(line);
  setTimeout(() => line.remove(), isBad ? 12000 : 5000);
}

/** Does what asks the coordinator to change something, with its button out of use meanwhile. done: what is told then, or
    what makes it of the answer. Resolves with the answer; null: it was refused. */
export async function change(button, promise, done) {
  if (button) button.disabled = true;
  try {
    const answer = await promise();
    tell(typeof done === "function" ? done(answer) : done);
    return answer;
  } catch (failure) {
    tell(failure.message, true);
    return null;
  } finally {
    if (button) button.disabled = false;
    if (button?.isConnected && document.activeElement === document.body) button.focus();
  }
}

export function showKeys(keys) {
  const rows = keys.map(
      ([names, what]) =>
          h("tr", {}, h("th", {scope: "row"}, names.split(" ").map((name) => h("kbd", {}, name))), h("td", {}, what)));
  const close = h("button", {type: "submit", value: "", autofocus: true}, "Close");
  return show(
      h("form", {method: "dialog", class: "ask"}, h("h2", {}, "Keys"),
        h("table", {class: "keys"}, h("tbody", {}, rows)), h("div", {class: "buttons"}, close)),
      {label: "Keys"});
}
