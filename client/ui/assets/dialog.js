/* What asks, and what tells: dialogs that give the focus back, and lines at the edge. */
import {h} from "./dom.js";

/** Shows a dialog; resolves with its return value once it is closed, the focus where it was, as dialogs of browsers do. */
export function show(content, {label}) {
  const dialog = h("dialog", {"aria-label": label}, content);
  document.body.append(dialog);
  dialog.showModal();
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

/** Asks for a value; null: none was given. */
export async function ask({title, text, label, value, yes}) {
  const input = h("input", {type: "text", value, "aria-label": label, autofocus: true, autocomplete: "off"});
  const form =
      h("form", {method: "dialog", class: "ask"}, h("h2", {}, title), h("p", {}, text), h("label", {}, label, input),
        h("div", {class: "buttons"}, h("button", {type: "submit", value: "no", formnovalidate: true}, "Cancel"),
          h("button", {type: "submit", value: "yes", class: "primary"}, yes)));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      form.closest("dialog").close("yes");
    }
  });
  input.select();
  return (await show(form, {label: title})) === "yes" ? input.value : null;
}

export function tell(text, isBad = false) {
  const line = h("div", {class: isBad ? "toast bad" : "toast"}, h("span", {}, text));
  const close = h("button", {class: "quiet icon", type: "button", "aria-label": "Dismiss"}, "×");
  close.addEventListener("click", () => line.remove());
  line.append(close);
  document.getElementById("toasts").append(line);
  setTimeout(() => line.remove(), isBad ? 12000 : 5000);
}

/** Does what asks the coordinator to change something, with its button out of use meanwhile. */
export async function change(button, promise, done) {
  if (button) button.disabled = true;
  try {
    await promise();
    tell(done);
  } catch (failure) {
    tell(failure.message, true);
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
