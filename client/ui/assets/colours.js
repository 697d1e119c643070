/* Colours of the theme, for what is drawn rather than styled. */
import {h} from "./dom.js";

/** Of the page's style sheet: colour("accent"). */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** The i-th of many curves: ten colours, then the same dashed. */
export const curveColour = (i) => colour(`curve-${i % 10}`);
export const curveDash = (i) => (i % 20 < 10 ? [] : [5, 3]);

const listeners = new Set();
const isDark = matchMedia("(prefers-color-scheme: dark)");

export const currentTheme = () => document.documentElement.dataset.theme ?? (isDark.matches ? "dark" : "light");

/** Called after each change of theme; returns what ends that. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const tell = () => listeners.forEach((listener) => listener());
isDark.addEventListener("change", tell);

export function switchTheme() {
  const theme = currentTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("weir.theme", theme);
  tell();
}

/** A mark of a curve's colour, as in its legend. */
export function swatch(i) {
  const mark = h("span", {class: i % 20 < 10 ? "swatch" : "swatch dashed"});
  mark.style.setProperty("--curve", `var(--curve-${i % 10})`);
  return mark;
}
