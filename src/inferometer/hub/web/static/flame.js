// One step as a flame: time from left to right, each layer under the block that it is in, by the names of the model.
import { colour, element, hideTip, showTip } from "./dom.js";
import { niceTicks, quantity, share } from "./format.js";

const HIGH = 22;
const AXIS = 20;
const DEEPEST = 5;
const WORDLESS = 28; // pixels under which a name is not written

// The layers that the shown phase ran, one after the other, each with the parts of its name.
function steps(rows, phase) {
  const found = [];
  let at = 0;
  for (let index = 0; index < rows.name.length; index += 1) {
    const time = rows.time_s[phase][index];
    if (!time) continue;
    found.push({ index, from: at, to: at + time, parts: rows.name[index].split(/[./]+/).filter(Boolean) });
    at += time;
  }
  return { found, inside: at };
}

// Neighbours that share the beginning of their names are one piece at that depth.
function pieces(found) {
  const made = [];
  const open = [];
  for (const step of found) {
    const deep = Math.min(step.parts.length, DEEPEST);
    for (let level = 0; level < deep; level += 1) {
      const last = level === deep - 1;
      const path = step.parts.slice(0, level + 1).join(".");
      const before = open[level];
      if (!last && before && before.path === path && before.to === step.from && before.index < 0) { before.to = step.to; continue; }
      const piece = { level, path, from: step.from, to: step.to, index: last ? step.index : -1, name: last ? step.parts.slice(level).join(".") : step.parts[level] };
      made.push(piece);
      open.length = level;
      open[level] = piece;
    }
  }
  return made;
}

export class Flame {
  constructor(box, rows, chosen) {
    this.rows = rows;
    this.chosen = chosen;
    this.canvas = element("canvas", { role: "img", "aria-label": "Time of one step, layer under block" });
    this.box = box;
    box.replaceChildren(this.canvas);
    this.canvas.addEventListener("mousemove", (event) => this.tip(event));
    this.canvas.addEventListener("mouseleave", hideTip);
    this.canvas.addEventListener("click", (event) => { const piece = this.at(event); if (piece && piece.index >= 0) this.chosen(piece.index); });
    new ResizeObserver(() => this.paint()).observe(box);
    document.addEventListener("themechange", () => this.paint());
  }

  show(phase, ink) {
    this.phase = phase < 0 ? this.rows.phases.length - 1 : phase;
    this.ink = ink;
    const { found, inside } = steps(this.rows, this.phase);
    this.whole = Math.max(this.rows.phases[this.phase].time_s, inside);
    this.pieces = pieces(found);
    if (this.whole > inside * 1.0001) this.pieces.push({ level: 0, path: "in no layer", name: "in no layer", from: inside, to: this.whole, index: -1, rest: true });
    this.levels = 1 + this.pieces.reduce((most, piece) => Math.max(most, piece.level), 0);
    this.box.style.height = `${this.levels * HIGH + AXIS}px`;
    this.paint();
  }

  select(index) {
    this.selected = index;
    this.paint();
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const time = (event.clientX - box.left) / box.width * this.whole;
    const level = Math.floor((event.clientY - box.top - AXIS) / HIGH);
    return this.pieces.find((piece) => piece.level === level && piece.from <= time && time < piece.to) || null;
  }

  tip(event) {
    const piece = this.at(event);
    if (!piece) { hideTip(); return; }
    const { rows } = this;
    showTip(event, piece.index < 0 ? piece.path : rows.name[piece.index], [
      ["time", quantity(piece.to - piece.from, "s")], ["share", share(piece.to - piece.from, this.whole)], ["equal ones", piece.index >= 0 && rows.count && rows.count[piece.index] > 1 ? rows.count[piece.index] : null],
      ["kind", piece.index >= 0 && rows.kind ? rows.kind[piece.index] : null], ["unit", piece.index >= 0 && rows.unit ? rows.unit[piece.index] : null],
    ]);
  }

  paint() {
    const { canvas } = this;
    if (!this.pieces || !canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const x = (time) => time / this.whole * canvas.clientWidth;
    pen.fillStyle = colour("soft");
    for (const tick of niceTicks(this.whole)) if (tick < this.whole * 0.95) pen.fillText(quantity(tick, "s", 3), x(tick) + 2, AXIS / 2);
    for (const piece of this.pieces) this.block(pen, piece, x(piece.from), Math.max(x(piece.to) - x(piece.from), 0.5));
  }

  block(pen, piece, left, wide) {
    const top = AXIS + piece.level * HIGH;
    pen.fillStyle = piece.rest ? colour("rest") : piece.index < 0 ? colour("line") : this.ink(piece.index);
    pen.fillRect(left, top, Math.max(wide - (wide > 3 ? 1 : 0), 0.5), HIGH - 2);
    if (piece.index >= 0 && piece.index === this.selected) {
      pen.fillStyle = colour("ink");
      pen.fillRect(left - 1, top + HIGH - 4, Math.max(wide + 1, 3), 4);
    }
    if (wide < WORDLESS) return;
    pen.save();
    pen.beginPath();
    pen.rect(left + 3, top, wide - 6, HIGH);
    pen.clip();
    pen.fillStyle = piece.index < 0 ? colour("ink") : "#ffffff";
    pen.fillText(piece.name, left + 4, top + HIGH / 2 - 1);
    pen.restore();
  }
}
