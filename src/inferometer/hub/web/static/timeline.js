// The timeline: every span of a trace on our own canvas, to pan and to zoom, and the names that took most of the time.
import { byId, colour, debounced, dragged, element, hideTip, showTip } from "./dom.js";
import { count, quantity, share } from "./format.js";
import { readTrace } from "./trace_reading.js";

const ROW_HIGH = 17;
const LANE_HIGH = 18; // the line with a lane's title
const AXIS_HIGH = 22;
const LETTERS = 34; // pixels under which nothing is written in a span
const DEEPEST = 24; // rows of a lane
const TALLEST = 460; // pixels; what is below scrolls
const MOST_NAMES = 200;
const INKS = ["cpu", "npu", "gpu", "dsp", "tpu"];

class Timeline {
  constructor(box, spans, chosen) {
    Object.assign(this, { box, spans, chosen });
    this.selected = -1;
    this.words = "";
    this.view = { from: spans.from, to: Math.max(spans.to, spans.from + 1e-9) };
    this.place();
    this.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": `${count(spans.length)} spans in ${count(spans.lanes.length)} lanes. A and D or the arrow keys move, + and − zoom, 0 shows all.` });
    this.room = element("div", { class: "room" });
    this.room.style.height = `${this.high}px`;
    box.style.height = `${Math.min(TALLEST, this.high + 2)}px`;
    box.replaceChildren(this.room, this.canvas);
    this.listen();
    this.draw();
  }

  // Where each row stands: lanes one below the other, each with its title above its rows.
  place() {
    let at = AXIS_HIGH;
    let lane = -1;
    this.titles = [];
    for (const row of this.spans.rows) {
      if (row.lane !== lane) { lane = row.lane; this.titles.push({ top: at, text: this.spans.lanes[lane].title }); at += LANE_HIGH; }
      row.top = row.depth < DEEPEST ? at : -1;
      if (row.top >= 0) at += ROW_HIGH;
    }
    this.high = at + 8;
  }

  x(time) {
    return (time - this.view.from) / (this.view.to - this.view.from) * this.canvas.clientWidth;
  }

  show(from, to) {
    const whole = this.spans.to - this.spans.from;
    const wide = Math.max(1e-9, Math.min(to - from, 1.1 * whole || 1e-9));
    const start = Math.max(this.spans.from - 0.05 * whole, Math.min(from, this.spans.to + 0.05 * whole - wide));
    this.view = { from: start, to: start + wide };
    this.draw();
  }

  zoom(factor, middle = (this.view.from + this.view.to) / 2) {
    this.show(middle - (middle - this.view.from) * factor, middle + (this.view.to - middle) * factor);
  }

  pan(part) {
    const by = part * (this.view.to - this.view.from);
    this.show(this.view.from + by, this.view.to + by);
  }

  go(span) {
    this.selected = span;
    const [start, time] = [this.spans.start[span], this.spans.time[span]];
    this.show(start - 2 * time - 1e-9, start + 3 * time + 1e-9);
    const row = this.spans.rows.find((each) => each.lane === this.spans.lane[span] && each.spans.includes(span));
    if (row) this.box.scrollTop = row.top - this.box.clientHeight / 2;
    this.box.scrollIntoView({ block: "nearest" });
    this.chosen(span);
  }

  // The first span of a row that ends after a time: spans of a row follow one another.
  after(row, time) {
    let [low, high] = [0, row.spans.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const span = row.spans[middle];
      if (this.spans.start[span] + this.spans.time[span] <= time) low = middle + 1; else high = middle;
    }
    return low;
  }

  at(event) {
    const frame = this.canvas.getBoundingClientRect();
    const y = event.clientY - frame.top + this.box.scrollTop;
    const row = this.spans.rows.find((each) => each.top >= 0 && y >= each.top && y < each.top + ROW_HIGH);
    if (!row) return -1;
    const per = (this.view.to - this.view.from) / frame.width;
    const time = this.view.from + (event.clientX - frame.left) * per;
    const span = row.spans[this.after(row, time - per)];
    return span !== undefined && this.spans.start[span] <= time + per ? span : -1;
  }

  listen() {
    const { canvas } = this;
    dragged(canvas, {
      hover: (event) => this.tip(event),
      move: (x) => this.pan(-x / canvas.clientWidth),
      click: (event) => {
        const span = this.at(event);
        if (span >= 0) { this.selected = span; this.draw(); this.chosen(span); }
      },
    });
    canvas.addEventListener("dblclick", (event) => { const span = this.at(event); if (span >= 0) this.go(span); });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey && document.activeElement !== canvas) return; // the page scrolls past it
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { this.pan((event.deltaX || event.deltaY) / 800); return; }
      const frame = canvas.getBoundingClientRect();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.view.from + (event.clientX - frame.left) / frame.width * (this.view.to - this.view.from));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const does = { "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), w: () => this.zoom(0.6), "-": () => this.zoom(1.6), s: () => this.zoom(1.6), ArrowRight: () => this.pan(0.2), d: () => this.pan(0.2), ArrowLeft: () => this.pan(-0.2), a: () => this.pan(-0.2), 0: () => this.show(this.spans.from, this.spans.to), ArrowDown: () => { this.box.scrollTop += 3 * ROW_HIGH; }, ArrowUp: () => { this.box.scrollTop -= 3 * ROW_HIGH; } }[event.key];
      if (does && !event.ctrlKey && !event.metaKey) { event.preventDefault(); does(); }
    });
    this.box.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.box);
    document.addEventListener("themechange", () => { this.inks = null; this.draw(); });
  }

  tip(event) {
    const span = this.at(event);
    if (span < 0) { hideTip(); return; }
    showTip(event, this.spans.names[this.spans.name[span]].slice(0, 300), [
      ["time", quantity(this.spans.time[span], "s")], ["of its own", this.spans.own[span] < 0.999 * this.spans.time[span] ? quantity(Math.max(this.spans.own[span], 0), "s") : null],
      ["after", quantity(this.spans.start[span] - this.spans.from, "s")], ["in", this.spans.lanes[this.spans.lane[span]].title],
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
    if (!wide) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(high * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.inks ||= { names: INKS.map(colour), ink: colour("ink"), soft: colour("soft"), band: colour("band"), line: colour("line"), accent: colour("accent") };
    const off = this.box.scrollTop;
    this.drawn = 0;
    for (const row of this.spans.rows) if (row.top >= 0 && row.top - off > -ROW_HIGH && row.top - off < high) this.row(pen, row, row.top - off, wide);
    for (const { top, text } of this.titles) this.strip(pen, text, top - off, wide, LANE_HIGH);
    this.axis(pen, wide);
    Object.assign(canvas.dataset, { drawn: this.drawn, selected: this.selected < 0 ? "" : this.spans.names[this.spans.name[this.selected]], shown: this.view.to - this.view.from });
  }

  strip(pen, text, top, wide, high) {
    pen.fillStyle = this.inks.band;
    pen.fillRect(0, top, wide, high);
    pen.fillStyle = this.inks.soft;
    pen.fillText(text, 6, top + high / 2);
  }

  axis(pen, wide) {
    this.strip(pen, "", 0, wide, AXIS_HIGH);
    const step = niceStep((this.view.to - this.view.from) / Math.max(2, wide / 130));
    pen.strokeStyle = this.inks.line;
    pen.fillStyle = this.inks.soft;
    for (let tick = Math.ceil((this.view.from - this.spans.from) / step); tick * step <= this.view.to - this.spans.from; tick += 1) {
      const x = this.x(this.spans.from + tick * step);
      pen.fillText(tick ? quantity(tick * step, "s", 6) : "0", x + 3, AXIS_HIGH / 2);
      pen.beginPath();
      pen.moveTo(x + 0.5, 0);
      pen.lineTo(x + 0.5, AXIS_HIGH);
      pen.stroke();
    }
  }

  // One span for each pixel at most: after a narrow one, the next that is looked at begins a pixel later.
  row(pen, row, top, wide) {
    const { spans, view } = this;
    const per = (view.to - view.from) / wide;
    let place = this.after(row, view.from);
    while (place < row.spans.length) {
      const span = row.spans[place];
      const start = spans.start[span];
      if (start > view.to) break;
      const left = Math.max(this.x(start), -2);
      const right = Math.min(this.x(start + spans.time[span]), wide + 2);
      this.span(pen, span, left, top, Math.max(right - left, 0.7));
      this.drawn += 1;
      place = right - left < 1 ? Math.max(place + 1, this.after(row, start + per)) : place + 1;
    }
  }

  span(pen, span, left, top, wide) {
    const name = this.spans.name[span];
    const found = !this.words || this.matches(name);
    pen.globalAlpha = found ? 1 : 0.2;
    pen.fillStyle = this.inks.names[name % this.inks.names.length];
    pen.fillRect(left, top, wide > 3 ? wide - 1 : wide, ROW_HIGH - 2);
    if (span === this.selected) { pen.strokeStyle = this.inks.ink; pen.lineWidth = 2; pen.strokeRect(left + 1, top + 1, Math.max(wide - 2, 2), ROW_HIGH - 4); pen.lineWidth = 1; }
    if (wide > LETTERS) {
      pen.save();
      pen.beginPath();
      pen.rect(left + 3, top, wide - 7, ROW_HIGH);
      pen.clip();
      pen.fillStyle = "#ffffff";
      pen.fillText(this.spans.names[name], left + 4, top + ROW_HIGH / 2 - 0.5);
      pen.restore();
    }
    pen.globalAlpha = 1;
  }

  find(words) {
    this.words = words.trim().toLowerCase();
    this.matching = new Map();
    this.draw();
  }

  matches(name) {
    if (!this.matching.has(name)) this.matching.set(name, this.spans.names[name].toLowerCase().includes(this.words));
    return this.matching.get(name);
  }
}

function niceStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
}

// The names with the most time of their own: what is inside a span counts for that alone.
function byName(spans) {
  const rows = spans.names.map((name, index) => ({ name, index, count: 0, own: 0, total: 0, longest: -1 }));
  for (let at = 0; at < spans.length; at += 1) {
    const row = rows[spans.name[at]];
    row.count += 1;
    row.own += Math.max(spans.own[at], 0);
    row.total += spans.time[at];
    if (row.longest < 0 || spans.time[at] > spans.time[row.longest]) row.longest = at;
  }
  return rows.sort((a, b) => b.own - a.own);
}

function listNames(spans, timeline) {
  const rows = byName(spans);
  const whole = rows.reduce((total, row) => total + row.own, 0);
  byId("names").replaceChildren(...rows.slice(0, MOST_NAMES).map((row) => element("tr", { "data-name": row.name },
    element("td", { class: "cut", "data-label": "Name" }, element("button", { type: "button", class: "link", title: row.name, onclick: () => timeline.go(row.longest) }, row.name)),
    ...[["Times", count(row.count)], ["Of its own", quantity(row.own, "s", 3)], ["Share", share(row.own, whole)], ["Mean", quantity(row.total / row.count, "s", 3)], ["Longest", quantity(spans.time[row.longest], "s", 3)]].map(([label, text]) => element("td", { class: "number", "data-label": label }, text)))));
  byId("names-more").textContent = rows.length > MOST_NAMES ? `${count(rows.length - MOST_NAMES)} more names took less.` : "";
}

async function show(stream, name, size) {
  const told = byId("told");
  byId("problem").hidden = true;
  try {
    const spans = await readTrace(stream, (read) => { told.textContent = size ? `Reading ${name}: ${Math.min(100, Math.round(100 * read / size))} %` : `Reading ${name}: ${quantity(read, "B", 3)}`; });
    byId("trace").hidden = false;
    const timeline = new Timeline(byId("timeline"), spans, (span) => {
      byId("chosen").textContent = `${spans.names[spans.name[span]]}: ${quantity(spans.time[span], "s")}, of which ${quantity(Math.max(spans.own[span], 0), "s")} of its own, ${quantity(spans.start[span] - spans.from, "s")} after the beginning, in ${spans.lanes[spans.lane[span]].title}`;
    });
    listNames(spans, timeline);
    byId("find-span").oninput = debounced(() => timeline.find(byId("find-span").value), 80);
    byId("closer").onclick = () => timeline.zoom(0.5);
    byId("farther").onclick = () => timeline.zoom(2);
    byId("whole").onclick = () => timeline.show(spans.from, spans.to);
    told.textContent = `${name}: ${count(spans.length)} spans in ${count(spans.lanes.length)} ${spans.lanes.length === 1 ? "lane" : "lanes"}, ${quantity(spans.to - spans.from, "s")}${spans.skipped ? `; ${count(spans.skipped)} other events are not drawn` : ""}`;
  } catch (error) {
    told.textContent = "";
    byId("problem").textContent = `${name}: ${error.message}`;
    byId("problem").hidden = false;
  }
}

async function open(file) {
  const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const packed = head[0] === 0x1f && head[1] === 0x8b;
  await show(packed ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream(), file.name, packed ? 0 : file.size);
}

const drop = byId("drop");
for (const name of ["dragover", "dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.toggle("over", name === "dragover"));
byId("file").addEventListener("change", (event) => { if (event.target.files[0]) open(event.target.files[0]); });
if (drop.dataset.src) {
  fetch(drop.dataset.src).then((answer) => (answer.ok ? show(answer.body, drop.dataset.name, 0) : Promise.reject(new Error(`There is no trace of this run (${answer.status}).`)))).catch((error) => { byId("problem").textContent = error.message; byId("problem").hidden = false; });
}
