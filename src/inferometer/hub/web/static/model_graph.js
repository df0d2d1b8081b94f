// The model as a graph with its times: boxes folded by block, coloured by what is asked, edges as wide as their bytes.
import { colour, dragged, element, hideTip, showTip } from "./dom.js";
import { count, quantity, share } from "./format.js";
import { layOut } from "./graph_layout.js";

const BOX_HIGH = 40; // of a box
const LETTER = 6.4; // pixels of a letter
const NARROWEST = 96;
const WIDEST = 250;
const READABLE = 0.5; // the scale under which nothing is written
const CLOSEST = 2;
const TALL = 600; // pixels: narrower than this, the graph goes from top to bottom
const BOUNDS = { compute: "npu", memory: "cpu", overhead: "tpu", storage: "dsp", host_link: "dsp", network: "gpu" };

export class ModelGraph {
  // `sums(name, row)` is a number of a row of the layer table in the phase that is shown; `chosen(row)` shows that row.
  constructor(box, data, rows, sums, chosen) {
    Object.assign(this, { data, rows, sums, chosen });
    this.by = "time";
    this.open = new Set();
    this.all = false;
    this.selected = -1; // a box
    this.words = [];
    this.inks = new Map();
    this.rowsOf = data.name.map(() => []);
    this.layerOf = new Map();
    for (const [layer, row, part] of data.links) {
      this.rowsOf[layer].push([row, part]);
      if (!this.layerOf.has(row)) this.layerOf.set(row, layer);
    }
    this.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": `The graph of ${data.name.length} layers. Arrow keys go from box to box, Enter opens a folded one, + and − zoom, 0 shows all.` });
    box.replaceChildren(this.canvas);
    this.listen(box);
    this.build();
  }

  // The boxes as they are folded now, and the edges between them.
  build() {
    const { data } = this;
    const made = new Map();
    this.boxes = [];
    this.boxOf = data.name.map((name, layer) => {
      const fold = this.all ? -1 : data.fold[layer];
      const key = fold < 0 ? `layer ${layer}` : this.open.has(fold) ? `${fold}.${data.place[layer]}` : `fold ${fold}`;
      if (!made.has(key)) {
        made.set(key, this.boxes.length);
        const closed = fold >= 0 && !this.open.has(fold);
        const times = fold < 0 ? 1 : data.folds[fold].count;
        this.boxes.push({ layers: [], fold, closed, times, title: closed ? data.folds[fold].title : times > 1 ? name.replace(/(^|[./_])\d+(?=[./])/, "$1*") : name });
      }
      this.boxes[made.get(key)].layers.push(layer);
      return made.get(key);
    });
    const edges = new Map();
    for (const [from, to, bytes] of data.edges) {
      const [a, b] = [this.boxOf[from], this.boxOf[to]];
      if (a >= b) continue; // inside a box, or from a repetition to the next
      const edge = edges.get(`${a} ${b}`);
      if (!edge) edges.set(`${a} ${b}`, { from: a, to: b, bytes });
      else if (bytes > edge.bytes) edge.bytes = bytes;
    }
    this.edges = [...edges.values()];
    for (const box of this.boxes) box.width = Math.max(NARROWEST, Math.min(WIDEST, LETTER * this.label(box).length + 24));
    this.across = this.canvas.clientWidth > TALL; // a phone has more room from top to bottom
    this.size = layOut(this.boxes, this.edges, BOX_HIGH, this.across);
    this.refresh();
  }

  label(box) {
    const name = box.title.length > 34 ? `…${box.title.slice(-33)}` : box.title;
    return box.times > 1 ? `${name} × ${count(box.times)}` : name;
  }

  // The numbers of each box in the phase that is shown, and what else is drawn of them.
  refresh() {
    for (const box of this.boxes) Object.assign(box, this.figures(box));
    const units = new Map();
    for (const box of this.boxes) for (const [unit, time] of box.units) units.set(unit, (units.get(unit) || 0) + time);
    this.main = [...units].sort((a, b) => b[1] - a[1])[0]?.[0];
    for (const box of this.boxes) box.fallen = [...box.units.keys()].filter((unit) => unit !== this.main);
    this.most = Math.max(...this.boxes.map((box) => box.time), 1e-12);
    const bytes = this.edges.map((edge) => edge.bytes).filter((each) => each > 0);
    this.least = Math.log(Math.min(...bytes, 1e30));
    this.spread = Math.max(1, Math.log(Math.max(...bytes, 1)) - this.least);
    this.changed?.(); // what stands beside it says the same numbers
    this.draw();
  }

  figures(box) {
    const { rows } = this;
    let [time, predicted, bytes] = [0, 0, 0];
    const [units, bounds] = [new Map(), new Map()];
    const within = new Set();
    for (const layer of box.layers) {
      for (const [row, part] of this.rowsOf[layer]) {
        const seconds = part * (this.sums("time_s", row) || 0);
        if (part === 0) { within.add(rows.name[row]); continue; }
        time += seconds;
        predicted += part * (this.sums("predicted_s", row) || 0);
        bytes += part * (this.sums("bytes", row) || 0);
        if (rows.unit?.[row]) units.set(rows.unit[row], (units.get(rows.unit[row]) || 0) + seconds);
        if (rows.bound?.[row]) bounds.set(rows.bound[row], (bounds.get(rows.bound[row]) || 0) + seconds);
      }
    }
    const [bound] = [...bounds].sort((a, b) => b[1] - a[1])[0] || [null];
    return { time, predicted, bytes, units, bound, within: time ? null : [...within][0] || null };
  }

  // The colour of a box: stronger with its time, or that of its kind of answer.
  fill(box) {
    if (this.by === "time") return mixed(this.ink("raised"), this.ink("accent"), 0.85 * Math.sqrt(box.time / this.most));
    if (!box.time) return this.ink("raised");
    if (this.by === "bound") return this.ink(BOUNDS[box.bound] || "rest");
    if (this.by === "unit") return this.unitInk([...box.units].sort((a, b) => b[1] - a[1])[0]?.[0]);
    if (!box.predicted) return this.ink("raised");
    const off = Math.log2(box.time / box.predicted); // twice as slow as predicted is as far off as twice as fast
    return mixed(this.ink("raised"), this.ink(off > 0 ? "npu" : "cpu"), Math.min(1, Math.abs(off) / 2));
  }

  // A colour of the page: asking for its style thousands of times a frame is slow.
  ink(name) {
    if (!this.inks.has(name)) this.inks.set(name, colour(name));
    return this.inks.get(name);
  }

  unitInk(unit) {
    return unit ? this.ink(unit.toLowerCase()) || this.rows.colours[unit] || this.ink("rest") : this.ink("rest");
  }

  legend() {
    if (this.by === "time") return [["no time", this.ink("raised")], [quantity(this.most, "s", 3), mixed(this.ink("raised"), this.ink("accent"), 0.85)]];
    if (this.by === "bound") return [...new Set(this.boxes.map((box) => box.bound).filter(Boolean))].map((bound) => [bound, this.ink(BOUNDS[bound] || "rest")]);
    if (this.by === "unit") return [...new Set(this.boxes.flatMap((box) => [...box.units.keys()]))].map((unit) => [unit, this.unitInk(unit)]);
    return [["4 × faster than predicted", this.ink("cpu")], ["as predicted", this.ink("raised")], ["4 × slower", this.ink("npu")]];
  }

  fallbacks() {
    return this.boxes.map((_, index) => index).filter((index) => this.boxes[index].fallen.length);
  }

  // How many layers ran elsewhere than most of the time was spent.
  fallenLayers() {
    return this.rowsOf.filter((mine) => mine.some(([row, part]) => part && this.rows.unit?.[row] && this.rows.unit[row] !== this.main)).length;
  }

  // Show the box of a row of the table; the fold that it is in is opened.
  showRow(row) {
    const layer = this.layerOf.get(row);
    if (layer === undefined) { this.selected = -1; this.draw(); return; }
    const fold = this.data.fold[layer];
    if (!this.all && fold >= 0 && !this.open.has(fold)) { this.open.add(fold); this.build(); }
    this.go(this.boxOf[layer], false);
  }

  go(index, tell = true) {
    this.selected = index;
    const box = this.boxes[index];
    if (this.scale < READABLE) this.scale = 0.9;
    this.left = this.canvas.clientWidth / 2 - box.x * this.scale;
    this.top = this.canvas.clientHeight / 2 - box.y * this.scale;
    this.draw();
    if (tell) this.tell(box);
  }

  tell(box) {
    const row = box.layers.flatMap((layer) => this.rowsOf[layer].map(([each]) => each))[0];
    if (row !== undefined) this.chosen(row);
  }

  toggle(index) {
    const { fold, layers } = this.boxes[index];
    if (fold < 0) return;
    if (this.open.has(fold)) this.open.delete(fold); else this.open.add(fold);
    this.build();
    this.go(this.boxOf[layers[0]], false);
  }

  unfold(all) {
    this.all = all;
    this.selected = -1;
    this.build();
    this.fit();
  }

  // The whole graph, or as much of its beginning as can be read.
  fit() {
    const [wide, high] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const [across, down] = [wide / (this.size.wide + 40), high / (this.size.high + 40)];
    this.scale = Math.min(1, this.across ? down : across, Math.max(this.across ? across : down, 1.4 * READABLE));
    this.left = Math.max((wide - this.size.wide * this.scale) / 2, 20);
    this.top = Math.max((high - this.size.high * this.scale) / 2, 20);
    this.draw();
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.max(0.02, Math.min(CLOSEST, this.scale * factor));
    this.left = x - (x - this.left) * scale / this.scale;
    this.top = y - (y - this.top) * scale / this.scale;
    this.scale = scale;
    this.draw();
  }

  find(words) {
    this.words = words.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (layer) => this.words.every((word) => `${this.data.name[layer]} ${this.data.kind[layer]}`.toLowerCase().includes(word));
    for (const box of this.boxes) box.found = this.words.length > 0 && (box.layers.some(matches) || this.words.every((word) => box.title.toLowerCase().includes(word)));
    this.draw();
    return this.boxes.map((_, index) => index).filter((index) => this.boxes[index].found);
  }

  at(event) {
    const frame = this.canvas.getBoundingClientRect();
    const x = (event.clientX - frame.left - this.left) / this.scale;
    const y = (event.clientY - frame.top - this.top) / this.scale;
    return this.boxes.findIndex((box) => Math.abs(x - box.x) <= box.width / 2 && Math.abs(y - box.y) <= BOX_HIGH / 2);
  }

  listen(frame) {
    const { canvas } = this;
    dragged(canvas, {
      hover: (event) => this.tip(event),
      move: (x, y) => { this.left += x; this.top += y; this.draw(); },
      click: (event) => {
        const index = this.at(event);
        if (index < 0) return;
        this.selected = index;
        this.draw();
        this.tell(this.boxes[index]);
      },
    });
    canvas.addEventListener("dblclick", (event) => { const index = this.at(event); if (index >= 0) this.toggle(index); });
    canvas.addEventListener("pointercancel", () => { held = null; });
    canvas.addEventListener("wheel", (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey) return; // the page scrolls past it
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      this.zoom(event.deltaY > 0 ? 0.85 : 1.18, event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    let sized = false;
    new ResizeObserver(() => { if (canvas.clientWidth && !sized) { sized = true; this.build(); this.fit(); } else this.draw(); }).observe(frame);
    document.addEventListener("themechange", () => { this.inks.clear(); this.draw(); });
    window.addEventListener("beforeprint", () => { this.inks.clear(); this.paint(); });
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step) this.go(Math.max(0, Math.min(this.boxes.length - 1, this.selected + step)));
    else if (event.key === "Enter" && this.selected >= 0) this.toggle(this.selected);
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  tip(event) {
    const box = this.boxes[this.at(event)];
    if (!box) { hideTip(); return; }
    const whole = this.boxes.reduce((total, each) => total + each.time, 0);
    showTip(event, this.label({ ...box, title: box.title.slice(0, 200) }), [
      ["time", box.within ? null : quantity(box.time, "s")], ["share", box.within ? null : share(box.time, whole)],
      ["runs in", box.within], ["predicted", box.predicted ? quantity(box.predicted, "s") : null], ["moved", box.bytes ? quantity(box.bytes, "B", 3) : null],
      ["bound by", box.bound], ["unit", [...box.units.keys()].join(", ")], ["kind", box.closed ? null : this.data.kind[box.layers[0]]],
      ["layers", box.closed ? count(box.layers.length) : null], ["", box.fold < 0 ? null : box.closed ? "double-click opens it" : "double-click folds it"],
    ]);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    const { canvas } = this;
    const [wide, high] = [canvas.clientWidth, canvas.clientHeight];
    if (!wide || this.scale === undefined) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(high * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio * this.scale, 0, 0, ratio * this.scale, ratio * this.left, ratio * this.top);
    const seen = { top: -this.top / this.scale - BOX_HIGH, bottom: (high - this.top) / this.scale + BOX_HIGH, left: -this.left / this.scale - WIDEST, right: (wide - this.left) / this.scale + WIDEST };
    const inSight = ({ points }) => (this.across ? points[0].x < seen.right && points.at(-1).x > seen.left : points[0].y < seen.bottom && points.at(-1).y > seen.top);
    for (const edge of this.edges) if (inSight(edge)) this.line(pen, edge);
    pen.setLineDash([]);
    this.boxes.forEach((box, index) => {
      if (box.y > seen.top && box.y < seen.bottom && box.x > seen.left && box.x < seen.right) this.box(pen, box, index);
    });
    canvas.dataset.boxes = String(this.boxes.length);
    canvas.dataset.selected = this.boxes[this.selected]?.title ?? "";
  }

  edgeInk(edge) {
    const [from, to] = [this.boxes[edge.from], this.boxes[edge.to]];
    const crosses = from.time && to.time && from.fallen.join() !== to.fallen.join();
    return { ink: this.ink(crosses ? "bad" : "soft"), width: edge.bytes ? 1 + 4 * (Math.log(edge.bytes) - this.least) / this.spread : 1 };
  }

  line(pen, edge) {
    const { ink, width } = this.edgeInk(edge);
    pen.strokeStyle = ink;
    pen.globalAlpha = 0.65;
    pen.lineWidth = width;
    pen.setLineDash(this.data.note ? [4, 4] : []);
    pen.beginPath();
    edge.points.forEach((point, at) => {
      if (!at) { pen.moveTo(point.x, point.y); return; }
      pen.bezierCurveTo(...this.bent(edge.points[at - 1], point));
    });
    pen.stroke();
    pen.globalAlpha = 1;
  }

  // A curve that leaves along the ranks and arrives along them.
  bent(from, to) {
    if (this.across) { const middle = (from.x + to.x) / 2; return [middle, from.y, middle, to.y, to.x, to.y]; }
    const middle = (from.y + to.y) / 2;
    return [from.x, middle, to.x, middle, to.x, to.y];
  }

  box(pen, box, index) {
    const [left, top] = [box.x - box.width / 2, box.y - BOX_HIGH / 2];
    const fill = this.fill(box);
    pen.globalAlpha = this.words.length && !box.found ? 0.25 : 1;
    if (box.closed && box.times > 1) { // a stack
      pen.fillStyle = fill;
      pen.strokeStyle = this.ink("soft");
      pen.lineWidth = 1;
      pen.beginPath();
      pen.roundRect(left + 4, top + 4, box.width, BOX_HIGH, 6);
      pen.fill();
      pen.stroke();
    }
    pen.beginPath();
    pen.roundRect(left, top, box.width, BOX_HIGH, 6);
    pen.fillStyle = fill;
    pen.fill();
    const fallen = box.fallen.length > 0;
    pen.strokeStyle = this.ink(index === this.selected ? "accent" : fallen ? "bad" : "soft");
    pen.lineWidth = index === this.selected ? 3.5 : fallen ? 2.5 : 1;
    pen.stroke();
    if (this.scale >= READABLE) this.text(pen, box, left, top, fill);
    pen.globalAlpha = 1;
  }

  lines(box) {
    const fallen = box.fallen.length ? ` · ${box.fallen.join(", ")}` : "";
    return [this.label(box), box.within ? `in ${box.within.slice(-24)}` : (box.time ? quantity(box.time, "s", 3) : "no time of its own") + fallen];
  }

  text(pen, box, left, top, fill) {
    pen.textBaseline = "middle";
    pen.fillStyle = readable(fill);
    this.lines(box).forEach((text, at) => {
      pen.font = at ? "10.5px system-ui, sans-serif" : "600 11.5px system-ui, sans-serif";
      pen.fillText(text, left + 10, top + (at ? 28 : 13), box.width - 16);
    });
  }

  // The whole graph as it is folded and coloured now.
  svg() {
    const [wide, high] = [this.size.wide + 40, this.size.high + 40].map(Math.ceil);
    const escaped = (text) => text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);
    const written = (numbers) => numbers.map((each) => each.toFixed(1)).join(" ");
    const path = (points) => points.map((point, at) => (at ? `C${written(this.bent(points[at - 1], point))}` : `M${written([point.x, point.y])}`)).join("");
    const lines = this.edges.map((edge) => { const { ink, width } = this.edgeInk(edge); return `<path d="${path(edge.points)}" stroke="${ink}" stroke-width="${width.toFixed(2)}" fill="none" opacity=".65"/>`; });
    const boxes = this.boxes.map((box) => {
      const fill = this.fill(box);
      const [name, time] = this.lines(box).map(escaped);
      const [left, top] = [box.x - box.width / 2, box.y - BOX_HIGH / 2];
      return `<g><title>${escaped(box.title)}</title><rect x="${left.toFixed(1)}" y="${top.toFixed(1)}" width="${box.width.toFixed(1)}" height="${BOX_HIGH}" rx="6" fill="${fill}" stroke="${this.ink(box.fallen.length ? "bad" : "soft")}" stroke-width="${box.fallen.length ? 2.5 : 1}"/><text x="${(left + 10).toFixed(1)}" y="${(top + 17).toFixed(1)}" font-weight="600" font-size="11.5" fill="${readable(fill)}">${name}</text><text x="${(left + 10).toFixed(1)}" y="${(top + 32).toFixed(1)}" font-size="10.5" fill="${readable(fill)}">${time}</text></g>`;
    });
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-20 -20 ${wide} ${high}" width="${wide}" height="${high}" font-family="system-ui, sans-serif"><rect x="-20" y="-20" width="${wide}" height="${high}" fill="${this.ink("paper")}"/>${lines.join("")}${boxes.join("")}</svg>`;
  }
}

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function mixed(from, to, part) {
  const [a, b] = [channels(from), channels(to)];
  return `#${a.map((each, at) => Math.round(each + (b[at] - each) * part).toString(16).padStart(2, "0")).join("")}`;
}

// Black or white, whichever stands out more on a colour: by its relative luminance (WCAG 2).
function readable(hex) {
  const [red, green, blue] = channels(hex).map((each) => (each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#11151b" : "#ffffff";
}
