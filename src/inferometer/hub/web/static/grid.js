// The model table: only the rows in sight are elements, so that five thousand scroll like fifty.
import { element } from "./dom.js";

const ROW = 26;
const MARGIN = 8;

export class Grid {
  constructor(box, columns, count, chosen) {
    this.box = box;
    this.columns = columns;
    this.order = Array.from({ length: count }, (_, index) => index);
    this.all = this.order;
    this.chosen = chosen;
    this.selected = -1;
    this.sort = { key: null, falling: false };
    this.live = new Map();
    this.build();
    this.paint();
  }

  build() {
    const { box } = this;
    box.setAttribute("role", "table");
    box.setAttribute("tabindex", "0");
    box.setAttribute("aria-label", "Layers of the model");
    this.template = this.columns.map((column) => (column.grow ? `minmax(${column.width}rem, ${column.grow}fr)` : `${column.width}rem`)).join(" ");
    this.least = `${this.columns.reduce((total, column) => total + column.width, 0)}rem`;
    const head = element("div", { class: "grid-head", role: "row" }, ...this.columns.map((column) => {
      column.button = element("button", { type: "button", title: column.title, onclick: () => this.sortBy(column) }, column.heading);
      column.cell = element("div", { role: "columnheader", "aria-sort": "none", class: `grid-cell${column.number ? " number" : ""}` }, column.button);
      return column.cell;
    }));
    head.style.gridTemplateColumns = this.template;
    head.style.minWidth = this.least;
    this.body = element("div", { class: "grid-body", role: "rowgroup" });
    this.body.style.minWidth = this.least;
    box.replaceChildren(head, this.body);
    this.head = head;
    let waiting = false;
    box.addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; this.paint(); });
    });
    box.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const place = Math.max(0, Math.min(this.order.length - 1, this.order.indexOf(this.selected) + step));
      this.select(this.order[place], true);
    });
    new ResizeObserver(() => this.paint()).observe(box);
  }

  sortBy(column) {
    const same = this.sort.key === column;
    if (same && !this.sort.falling) this.sort = { key: null, falling: false };
    else this.sort = { key: column, falling: same ? !this.sort.falling : Boolean(column.number) };
    for (const each of this.columns) {
      const [arrow, order] = each !== this.sort.key ? ["", "none"] : this.sort.falling ? [" ↓", "descending"] : [" ↑", "ascending"];
      each.button.textContent = each.heading + arrow;
      each.cell.setAttribute("aria-sort", order);
    }
    this.keep(this.kept || (() => true));
  }

  keep(test) {
    this.kept = test;
    this.order = this.all.filter(test);
    const { key, falling } = this.sort;
    if (key) {
      const sign = falling ? -1 : 1;
      this.order.sort((a, b) => {
        const one = key.value(a);
        const other = key.value(b);
        if (one === other) return a - b;
        if (one === null || one === undefined) return 1;
        if (other === null || other === undefined) return -1;
        return sign * (one < other ? -1 : 1);
      });
    }
    this.refresh();
  }

  refresh() {
    for (const row of this.live.values()) row.remove();
    this.live.clear();
    this.paint();
  }

  select(index, tell, show = false) {
    if (show) this.box.scrollIntoView({ block: "nearest" });
    const before = this.live.get(this.selected);
    before?.classList.remove("chosen");
    before?.removeAttribute("aria-selected");
    this.selected = index;
    const place = this.order.indexOf(index);
    if (place >= 0) {
      const top = place * ROW;
      const seen = this.box.clientHeight - this.head.offsetHeight;
      if (top < this.box.scrollTop || top + ROW > this.box.scrollTop + seen) this.box.scrollTop = top - seen / 2 + ROW;
    }
    this.paint();
    const row = this.live.get(index);
    row?.classList.add("chosen");
    row?.setAttribute("aria-selected", "true");
    if (tell) this.chosen(index);
  }

  paint() {
    this.body.style.height = `${this.order.length * ROW}px`;
    this.box.setAttribute("aria-rowcount", String(this.order.length + 1));
    const from = Math.max(0, Math.floor(this.box.scrollTop / ROW) - MARGIN);
    const to = Math.min(this.order.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + MARGIN);
    const wanted = new Set(this.order.slice(from, to));
    for (const [index, row] of this.live) if (!wanted.has(index)) { row.remove(); this.live.delete(index); }
    for (let place = from; place < to; place += 1) {
      const index = this.order[place];
      if (!this.live.has(index)) {
        const row = this.row(index, place);
        this.live.set(index, row);
        this.body.append(row);
      }
    }
  }

  row(index, place) {
    const cells = this.columns.map((column) => {
      const cell = element("div", { class: `grid-cell${column.number ? " number" : ""}${column.tail ? " tail" : ""}`, role: "cell" });
      const shown = column.show(index);
      cell.append(column.tail ? element("bdi", {}, shown) : shown);
      if (typeof shown === "string" && shown.length > 16) cell.title = shown;
      return cell;
    });
    const chosen = index === this.selected;
    const row = element("div", { class: `grid-row${chosen ? " chosen" : ""}`, role: "row", "aria-rowindex": place + 2, "aria-selected": chosen ? "true" : null, "data-index": index, onclick: () => this.select(index, true) }, ...cells);
    row.style.gridTemplateColumns = this.template;
    row.style.top = `${place * ROW}px`;
    return row;
  }
}
