/* A long table: only the rows in sight are there. A cursor goes by j and k, Enter opens, x selects. */
import {h, keep, say, setAttribute, setText} from "./dom.js";

const MARGIN = 12; // rows beyond what is seen

export class LongTable {
  /** columns: {name, title, align, width, make(row) -> element, change(cell, row), sort(row)}; options: label, key(row), open(row),
      canSelect, isSelected(row), onSelect(row, isSelected), rowHeight, describe(row). */
  constructor(columns, options) {
    Object.assign(
        this,
        {columns, options, rows: [], cursor: null, sorted: options.sorted ?? null, rowHeight: options.rowHeight ?? 33});
    this.heads = columns.map((column) => this.makeHead(column));
    this.body = h("tbody", {});
    this.before = h("div", {});
    this.after = h("div", {});
    this.table =
        h("table", {class: "long", role: "grid", "aria-label": options.label},
          h("colgroup", {}, columns.map((column) => h("col", {style: column.width ? {width: column.width} : {}}))),
          h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.element =
        h("div", {class: "long-scroll", tabindex: "0", role: "region", "aria-label": options.label}, this.before,
          this.table, this.after);
    this.element.addEventListener("scroll", () => this.layOut(), {passive: true});
    this.sizes = new ResizeObserver(() => this.layOut());
    this.sizes.observe(this.element);
  }

  makeHead(column) {
    const head = h("th", {scope: "col", class: column.align ?? ""});
    if (!column.sort) {
      head.append(column.title ?? "");
      return head;
    }
    head.append(h("button", {type: "button", class: "sort", onclick: () => this.sortBy(column)}, column.title));
    return head;
  }

  sortBy(column) {
    const isDown = this.sorted?.column === column.name && !this.sorted.isDown;
    this.sorted = this.sorted?.column === column.name && this.sorted.isDown ? null : {column: column.name, isDown};
    this.show(this.given);
  }

  /** rows: in their own order, which holds where no column is sorted by. */
  show(rows) {
    this.given = rows;
    const column = this.columns.find((one) => one.name === this.sorted?.column), sign = this.sorted?.isDown ? -1 : 1;
    this.rows = column ? [...rows].sort((a, b) => compare(column.sort(a), column.sort(b), sign)) : rows;
    this.heads.forEach(
        (head, i) => setAttribute(
            head, "aria-sort", this.columns[i] === column ? (this.sorted.isDown ? "descending" : "ascending") : null));
    this.layOut();
  }

  layOut() {
    const height = this.rowHeight, first = Math.max(0, Math.floor(this.element.scrollTop / height) - MARGIN);
    const last =
        Math.min(this.rows.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / height) + MARGIN);
    this.before.style.height = `${first * height}px`;
    this.after.style.height = `${Math.max(0, this.rows.length - last) * height}px`;
    setAttribute(this.table, "aria-rowcount", this.rows.length + 1);
    keep(
        this.body, this.rows.slice(first, last), this.options.key, (row) => this.makeRow(row),
        (element, row) => this.changeRow(element, row));
  }

  makeRow(row) {
    const key = this.options.key(row);
    const element =
        h("tr", {
          "data-key": key,
          onclick: (event) => {
            if (event.target.closest("a, button, input")) return;
            this.moveTo(key);
            this.options.open?.(this.find(key));
          }
        },
          this.columns.map((column) => h("td", {class: column.align ?? ""}, column.make?.(row))));
    return element;
  }

  changeRow(element, row) {
    this.columns.forEach((column, i) => column.change(element.children[i], row));
    setAttribute(element, "aria-selected", this.options.isSelected?.(row) ? "true" : null);
    setAttribute(element, "data-cursor", this.options.key(row) === this.cursor ? "yes" : null);
  }

  find(key) { return this.rows.find((row) => this.options.key(row) === key); }

  current() { return this.cursor === null ? undefined : this.find(this.cursor); }

  moveTo(key) {
    this.cursor = key;
    this.layOut();
  }

  move(by) {
    if (!this.rows.length) return;
    const at = this.rows.findIndex((row) => this.options.key(row) === this.cursor);
    const next = at < 0 ? (by > 0 ? 0 : this.rows.length - 1) : Math.min(this.rows.length - 1, Math.max(0, at + by));
    const top = next * this.rowHeight, {scrollTop, clientHeight} = this.element, head = this.rowHeight;
    if (top < scrollTop)
      this.element.scrollTop = top;
    else if (top + 2 * head > scrollTop + clientHeight)
      this.element.scrollTop = top + 2 * head - clientHeight;
    this.moveTo(this.options.key(this.rows[next]));
    say(this.options.describe?.(this.rows[next]) ?? this.cursor);
  }

  toggle() {
    const row = this.current();
    if (!row || !this.options.onSelect) return;
    this.options.onSelect(row, !this.options.isSelected(row));
    this.layOut();
  }

  open() {
    const row = this.current();
    if (row) this.options.open?.(row);
  }

  close() { this.sizes.disconnect(); }
}

const isUnknown = (value) => value === undefined || value === null || Number.isNaN(value);

/** What is not known comes last in both directions. */
function compare(a, b, sign) {
  if (isUnknown(a) || isUnknown(b)) return Number(isUnknown(a)) - Number(isUnknown(b));
  return sign * (typeof a === "string" ? a.localeCompare(b, "en", {numeric: true}) : a - b);
}

/** A column of plain text. */
export const textColumn = (name, title, text, more = {}) =>
    ({name, title, sort: more.sort ?? text, ...more, change: (cell, row) => setText(cell, text(row))});
