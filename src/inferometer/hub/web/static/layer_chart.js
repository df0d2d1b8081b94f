// The layer chart: one bar a layer in the order of execution, drawn on a canvas, so that thousands of them are quick.
import { colour, element, hideTip, showTip } from "./dom.js";
import { niceTicks, quantity, share } from "./format.js";

const LEFT = 62;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;
const PHASE_COLOURS = ["cpu", "npu", "gpu", "dsp", "tpu"];

export class LayerChart {
  constructor(box, rows, chosen) {
    this.rows = rows;
    this.chosen = chosen;
    this.count = rows.name.length;
    this.first = 0;
    this.last = this.count;
    this.phase = rows.phases.length > 1 ? -1 : 0;
    this.selected = -1;
    this.overlays = { predicted_s: true, floor_s: true };
    this.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": `Time of ${this.count} layers in the order of execution. Arrow keys choose a layer, + and − zoom.` });
    box.replaceChildren(this.canvas);
    this.listen(box);
    this.draw();
  }

  phases() {
    return this.phase < 0 ? this.rows.phases.map((_, index) => index) : [this.phase];
  }

  // How often a phase counts: in one request if all are shown, else once.
  times(phase) {
    return this.phase < 0 ? this.rows.phases[phase].times : 1;
  }

  // What is shown as a whole: one request, or one run of the chosen phase.
  whole() {
    return this.phase < 0 ? this.rows.request_s : this.rows.phases[this.phase].time_s;
  }

  sum(name, index) {
    const columns = this.rows[name];
    if (!columns) return null;
    let total = null;
    for (const phase of this.phases()) {
      const value = columns[phase][index];
      if (value !== null) total = (total || 0) + value * this.times(phase);
    }
    return total;
  }

  // A number of one phase that does not add up over phases: the least of its steps, the most, their growth.
  one(name, index) {
    const phase = this.phase < 0 && this.rows.phases.length === 1 ? 0 : this.phase;
    return phase < 0 ? null : this.rows[name][phase][index];
  }

  colours() {
    if (this.phase < 0) return this.rows.phases.map((_, index) => colour(PHASE_COLOURS[index % PHASE_COLOURS.length]));
    return null;
  }

  unitColour(index) {
    const unit = this.rows.unit ? this.rows.unit[index] : null;
    if (!unit) return colour("rest");
    this.kept = this.kept || new Map();
    if (!this.kept.has(unit)) this.kept.set(unit, colour(unit.toLowerCase()) || this.rows.colours[unit]);
    return this.kept.get(unit);
  }

  show(phase) {
    this.phase = phase;
    this.draw();
  }

  select(index, tell = true) {
    this.selected = index;
    if (index >= 0 && (index < this.first || index >= this.last)) {
      const span = this.last - this.first;
      this.first = Math.max(0, Math.min(this.count - span, index - Math.floor(span / 2)));
      this.last = this.first + span;
    }
    this.draw();
    if (tell && index >= 0) this.chosen(index);
  }

  zoom(factor, middle = (this.first + this.last) / 2) {
    const span = Math.max(5, Math.min(this.count, (this.last - this.first) * factor));
    const part = (middle - this.first) / Math.max(1, this.last - this.first);
    this.first = Math.max(0, Math.min(this.count - span, middle - part * span));
    this.last = this.first + span;
    this.draw();
  }

  pan(by) {
    const span = this.last - this.first;
    this.first = Math.max(0, Math.min(this.count - span, this.first + by));
    this.last = this.first + span;
    this.draw();
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const wide = box.width - LEFT - RIGHT;
    const x = event.clientX - box.left - LEFT;
    if (x < 0 || x > wide) return -1;
    const per = (this.last - this.first) / wide;
    const from = Math.floor(this.first + x * per);
    const to = Math.max(from + 1, Math.floor(this.first + (x + 1) * per));
    let found = from;
    for (let index = from; index < Math.min(to, this.count); index += 1) {
      if ((this.sum("time_s", index) || 0) > (this.sum("time_s", found) || 0)) found = index;
    }
    return found >= 0 && found < this.count ? found : -1;
  }

  tip(event, index) {
    const { rows } = this;
    const times = this.phases().map((phase) => [rows.phases[phase].name, quantity(rows.time_s[phase][index], "s")]);
    showTip(event, rows.name[index], [
      ...times,
      ["share", share(this.sum("time_s", index), this.whole())],
      ["predicted", rows.predicted_s ? quantity(this.sum("predicted_s", index), "s") : null],
      ["floor", rows.floor_s ? quantity(this.sum("floor_s", index), "s") : null],
      ["kind", rows.kind ? rows.kind[index] : null],
      ["unit", rows.unit ? rows.unit[index] : null],
      ["bound by", rows.bound ? rows.bound[index] : null],
    ]);
  }

  listen(box) {
    const { canvas } = this;
    let dragged = null;
    canvas.addEventListener("pointermove", (event) => {
      if (dragged && event.buttons === 1) {
        const wide = canvas.clientWidth - LEFT - RIGHT;
        const by = (dragged.x - event.clientX) * (this.last - this.first) / wide;
        if (Math.abs(event.clientX - dragged.from) > 3) dragged.moved = true;
        if (dragged.moved) { this.pan(by); dragged.x = event.clientX; hideTip(); }
        return;
      }
      const index = this.at(event);
      this.hover = index;
      this.draw();
      if (index >= 0) this.tip(event, index); else hideTip();
    });
    canvas.addEventListener("pointerdown", (event) => { dragged = { x: event.clientX, from: event.clientX, moved: false }; });
    canvas.addEventListener("pointerup", (event) => {
      if (dragged && !dragged.moved) { const index = this.at(event); if (index >= 0) this.select(index); }
      dragged = null;
    });
    canvas.addEventListener("pointerleave", () => { this.hover = -1; dragged = null; hideTip(); this.draw(); });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaY) < Math.abs(event.deltaX)) { event.preventDefault(); this.pan(event.deltaX * (this.last - this.first) / 800); return; }
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const index = this.at(event);
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, index >= 0 ? index : undefined);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20 };
      if (event.key in steps) { event.preventDefault(); this.select(Math.max(0, Math.min(this.count - 1, (this.selected < 0 ? (steps[event.key] > 0 ? -1 : 0) : this.selected) + steps[event.key]))); }
      else if (event.key === "+" || event.key === "=") this.zoom(0.5, this.selected >= 0 ? this.selected : undefined);
      else if (event.key === "-") this.zoom(2);
      else if (event.key === "0") { this.first = 0; this.last = this.count; this.draw(); }
      else if (event.key === "Home") { event.preventDefault(); this.select(0); }
      else if (event.key === "End") { event.preventDefault(); this.select(this.count - 1); }
    });
    new ResizeObserver(() => this.draw()).observe(box);
    document.addEventListener("themechange", () => { this.kept = null; this.draw(); });
    window.addEventListener("beforeprint", () => { this.kept = null; this.paint(); });
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  most(from, to) {
    let most = 0;
    for (let index = from; index < to; index += 1) {
      most = Math.max(most, this.sum("time_s", index) || 0);
      for (const name of ["predicted_s", "floor_s"]) if (this.overlays[name]) most = Math.max(most, this.sum(name, index) || 0);
    }
    return most || 1e-9;
  }

  paint() {
    const { canvas } = this;
    const wide = canvas.clientWidth;
    const high = canvas.clientHeight;
    if (!wide) return;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(high * ratio)) {
      canvas.width = Math.round(wide * ratio);
      canvas.height = Math.round(high * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, high);
    const from = Math.max(0, Math.floor(this.first));
    const to = Math.min(this.count, Math.ceil(this.last));
    const most = this.most(from, to) * 1.04;
    const plane = { wide: wide - LEFT - RIGHT, high: high - TOP - BOTTOM, most };
    plane.step = plane.wide / (this.last - this.first);
    plane.x = (index) => LEFT + (index - this.first) * plane.step;
    plane.y = (value) => TOP + plane.high * (1 - value / most);
    this.axes(pen, plane, high);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, plane.wide, high);
    pen.clip();
    this.bars(pen, plane, from, to);
    for (const [name, ink] of [["floor_s", "ink"], ["predicted_s", "ink"]]) if (this.overlays[name] && this.rows[name]) this.overlay(pen, plane, name, colour(ink), from, to);
    this.marks(pen, plane);
    pen.restore();
    if (!this.ready) performance.mark("layers-drawn");
    this.ready = true;
    canvas.dataset.ready = "true";
  }

  axes(pen, plane, high) {
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colour("soft");
    pen.strokeStyle = colour("line");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of niceTicks(plane.most)) {
      const y = Math.round(plane.y(tick)) + 0.5;
      pen.beginPath();
      pen.moveTo(LEFT, y);
      pen.lineTo(LEFT + plane.wide, y);
      pen.stroke();
      pen.fillText(quantity(tick, "s", 3), LEFT - 6, y);
    }
    pen.textBaseline = "alphabetic";
    pen.textAlign = "left";
    pen.fillText(`layer ${Math.floor(this.first) + 1}`, LEFT, high - 6);
    pen.textAlign = "right";
    pen.fillText(`${Math.ceil(this.last)} of ${this.count}`, LEFT + plane.wide, high - 6);
  }

  bars(pen, plane, from, to) {
    const stacked = this.colours();
    const gap = plane.step > 4 ? Math.min(3, plane.step * 0.2) : 0;
    const put = (index, x, width) => {
      let base = 0;
      for (const phase of this.phases()) {
        const value = this.rows.time_s[phase][index] * this.times(phase);
        if (!value) continue;
        pen.fillStyle = stacked ? stacked[phase] : this.unitColour(index);
        const top = plane.y(base + value);
        pen.fillRect(x, top, width, Math.max(plane.y(base) - top, 0.5));
        base += value;
      }
    };
    if (plane.step >= 1) {
      for (let index = from; index < to; index += 1) put(index, plane.x(index) + gap / 2, Math.max(plane.step - gap, 1));
      return;
    }
    for (let x = 0; x < plane.wide; x += 1) {
      let best = -1;
      let most = -1;
      const stop = Math.min(to, Math.floor(this.first + (x + 1) / plane.step));
      for (let index = Math.max(from, Math.floor(this.first + x / plane.step)); index < stop; index += 1) {
        const value = this.sum("time_s", index) || 0;
        if (value > most) { most = value; best = index; }
      }
      if (best >= 0) put(best, LEFT + x, 1);
    }
  }

  overlay(pen, plane, name, ink, from, to) {
    pen.strokeStyle = ink;
    pen.lineWidth = name === "predicted_s" ? 1.6 : 1.2;
    pen.setLineDash(name === "floor_s" ? [3, 2] : []);
    pen.beginPath();
    if (plane.step < 1.5) { this.outline(pen, plane, name, from, to); return; }
    for (let index = from; index < to; index += 1) {
      const value = this.sum(name, index);
      if (value === null) continue;
      const y = plane.y(value);
      pen.moveTo(plane.x(index), y);
      pen.lineTo(plane.x(index) + Math.max(plane.step, 1), y);
    }
    pen.stroke();
    pen.setLineDash([]);
  }

  // Too many to draw one by one: the largest of each few pixels as a faint line.
  outline(pen, plane, name, from, to) {
    const wide = 4 / plane.step;
    for (let start = from; start < to; start += wide) {
      let most = null;
      for (let index = Math.floor(start); index < Math.min(to, start + wide); index += 1) { const value = this.sum(name, index); if (value !== null && value > (most ?? -1)) most = value; }
      if (most !== null) pen.lineTo(plane.x(start + wide / 2), plane.y(most));
    }
    pen.globalAlpha = 0.45;
    pen.lineWidth = 1;
    pen.stroke();
    pen.globalAlpha = 1;
    pen.setLineDash([]);
  }

  marks(pen, plane) {
    for (const [index, strength] of [[this.hover, 0.12], [this.selected, 0.22]]) {
      if (index === undefined || index < 0) continue;
      const width = Math.max(plane.step, 3);
      pen.fillStyle = colour("accent");
      pen.globalAlpha = strength;
      pen.fillRect(plane.x(index) + (plane.step - width) / 2, TOP, width, plane.high);
      pen.globalAlpha = 1;
      if (index === this.selected) pen.fillRect(plane.x(index) + (plane.step - width) / 2, TOP + plane.high, width, 3);
    }
  }
}
