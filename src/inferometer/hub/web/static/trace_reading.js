// Reading a trace piece by piece, so that one of a gigabyte needs no gigabyte of text: each event becomes a few numbers.
// Takes the Trace Event Format (PyTorch, ONNX Runtime, ours, Chrome's) and `nsys stats --report cuda_gpu_trace --format csv`.

const FIRST = 65536; // spans that there is room for at the beginning; it doubles
const MICROSECOND = 1e-6;
const NANOSECOND = 1e-9;

// Spans by columns. Times are seconds; `depth` is how many spans of its lane it lies in; `own` is without those in it.
export class Spans {
  constructor() {
    this.length = 0;
    this.skipped = 0; // events that are no spans: counters, flows, marks
    this.names = [];
    this.lanes = [];
    this.known = { names: new Map(), lanes: new Map() };
    this.grow(FIRST);
  }

  grow(room) {
    const bigger = (Kind, old) => { const made = new Kind(room); if (old) made.set(old); return made; };
    this.start = bigger(Float64Array, this.start);
    this.time = bigger(Float64Array, this.time);
    this.name = bigger(Uint32Array, this.name);
    this.lane = bigger(Uint32Array, this.lane);
  }

  numberOf(kind, text) {
    const known = this.known[kind];
    if (!known.has(text)) { known.set(text, this[kind].length); this[kind].push(kind === "names" ? text : { title: text }); }
    return known.get(text);
  }

  add(lane, name, start, time) {
    if (!Number.isFinite(start) || !(time >= 0)) { this.skipped += 1; return; }
    if (this.length === this.start.length) this.grow(2 * this.length);
    this.start[this.length] = start;
    this.time[this.length] = time;
    this.name[this.length] = this.numberOf("names", String(name));
    this.lane[this.length] = lane;
    this.length += 1;
  }

  // Rows of spans that do not overlap, by lane and depth, each in the order of time; and the time of each span alone.
  finish() {
    const order = Uint32Array.from({ length: this.length }, (_, at) => at);
    order.sort((a, b) => this.lane[a] - this.lane[b] || this.start[a] - this.start[b] || this.time[b] - this.time[a]);
    this.own = this.time.slice(0, this.length);
    this.rows = [];
    let [lane, rows, open] = [-1, [], []];
    for (const at of order) {
      if (this.lane[at] !== lane) { lane = this.lane[at]; rows = []; open = []; }
      const end = (span) => this.start[span] + this.time[span];
      while (open.length && end(open.at(-1)) <= this.start[at] + 1e-12) open.pop();
      if (open.length) this.own[open.at(-1)] -= Math.min(this.time[at], end(open.at(-1)) - this.start[at]);
      const depth = open.length;
      open.push(at);
      if (!rows[depth]) { rows[depth] = { lane, depth, spans: [] }; this.rows.push(rows[depth]); }
      rows[depth].spans.push(at);
    }
    this.rows.sort((a, b) => a.lane - b.lane || a.depth - b.depth);
    for (const row of this.rows) row.spans = Uint32Array.from(row.spans);
    this.from = this.to = 0;
    if (this.length) {
      this.from = Infinity;
      this.to = -Infinity;
      for (let at = 0; at < this.length; at += 1) { this.from = Math.min(this.from, this.start[at]); this.to = Math.max(this.to, this.start[at] + this.time[at]); }
    }
    return this;
  }
}

// Read a stream of bytes. `progress(bytes)` hears how many are read.
export async function readTrace(stream, progress = () => {}) {
  const spans = new Spans();
  let reader = null;
  const source = stream.getReader();
  const text = new TextDecoder();
  let read = 0;
  for (;;) {
    const { value, done } = await source.read();
    const piece = text.decode(value, { stream: !done });
    if (!reader && piece.trim()) reader = /^\s*[[{]/.test(piece) ? new EventReader(spans) : new TableReader(spans);
    if (piece) reader?.feed(piece);
    if (done) break;
    read += value.length;
    progress(read);
  }
  reader?.end();
  if (!spans.length) throw new Error("There is no span with a start and a duration in this file. It may be a trace of PyTorch, ONNX Runtime or Chrome (JSON), or nsys stats --report cuda_gpu_trace --format csv.");
  return spans.finish();
}

// Finds the objects of the list of events in a text that comes in pieces, and reads each by itself.
class EventReader {
  constructor(spans) {
    this.spans = spans;
    this.rest = ""; // of the text: begins with the object that is being read
    this.at = 0;
    this.depth = 0;
    this.start = -1; // where the object began, or −1
    this.list = -1; // the depth of the list of events: 1 if the file is one, 2 if it is in an object
    this.quoted = false;
    this.begun = new Map(); // spans of a lane that have not ended
  }

  feed(piece) {
    const text = this.rest + piece;
    const marks = /["\\{}[\]]/g;
    marks.lastIndex = this.at;
    let from = 0;
    for (let found = marks.exec(text); found; found = marks.exec(text)) {
      const mark = found[0];
      if (this.quoted) {
        if (mark === "\\") { if (found.index + 1 >= text.length) { this.at = found.index; return this.keep(text, from); } marks.lastIndex = found.index + 2; } else if (mark === '"') this.quoted = false;
      } else if (mark === '"') this.quoted = true;
      else if (mark === "{" || mark === "[") {
        if (this.depth === 0) this.list = mark === "[" ? 1 : 2;
        if (mark === "{" && this.depth === this.list && this.start < 0) this.start = found.index;
        this.depth += 1;
      } else if (mark !== "\\") {
        this.depth -= 1;
        if (this.start >= 0 && this.depth === this.list) { this.event(text.slice(this.start, found.index + 1)); from = found.index + 1; this.start = -1; }
      }
    }
    this.at = text.length;
    return this.keep(text, from);
  }

  // What is not read to its end comes again with the next piece.
  keep(text, from) {
    const cut = this.start >= 0 ? this.start : Math.max(from, Math.min(this.at, text.length));
    this.rest = text.slice(cut);
    this.at -= cut;
    if (this.start >= 0) this.start -= cut;
  }

  event(text) {
    let event;
    try { event = JSON.parse(text); } catch { this.spans.skipped += 1; return; }
    const key = `${event.pid} ${event.tid}`;
    if (event.ph === "M") { this.title(event, key); return; }
    if (!["X", "B", "E"].includes(event.ph)) { this.spans.skipped += 1; return; }
    const lane = this.spans.numberOf("lanes", key);
    if (event.ph === "X") this.spans.add(lane, event.name, event.ts * MICROSECOND, (event.dur ?? 0) * MICROSECOND);
    else if (event.ph === "B") { if (!this.begun.has(key)) this.begun.set(key, []); this.begun.get(key).push(event); } else {
      const begun = this.begun.get(key)?.pop();
      if (begun) this.spans.add(lane, begun.name, begun.ts * MICROSECOND, (event.ts - begun.ts) * MICROSECOND);
    }
  }

  title(event, key) {
    const name = event.args?.name;
    if (event.name === "thread_name" && name) this.spans.lanes[this.spans.numberOf("lanes", key)].thread = String(name);
    if (event.name === "process_name" && name) (this.processes ||= new Map()).set(String(event.pid), String(name));
  }

  end() {
    for (const lane of this.spans.lanes) {
      const [process, thread] = lane.title.split(" ");
      const named = this.processes?.get(process);
      lane.title = [named, lane.thread || (thread === "undefined" ? null : `thread ${thread}`)].filter(Boolean).join(" · ") || lane.title;
    }
  }
}

// A table with a row for each kernel and copy: its start, its duration, its stream and its name.
class TableReader {
  constructor(spans) {
    this.spans = spans;
    this.rest = "";
    this.columns = null;
  }

  feed(piece) {
    const lines = (this.rest + piece).split(/\r?\n/);
    this.rest = lines.pop();
    for (const line of lines) this.row(line);
  }

  row(line) {
    const cells = [...line.matchAll(/("(?:[^"]|"")*"|[^,]*)(?:,|$)/g)].map(([, cell]) => (cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell));
    if (!this.columns) {
      const place = (name) => cells.indexOf(name);
      if (place("Start (ns)") >= 0 && place("Duration (ns)") >= 0 && place("Name") >= 0) this.columns = { start: place("Start (ns)"), time: place("Duration (ns)"), name: place("Name"), stream: place("Strm"), device: place("Device") };
      return;
    }
    const { start, time, name, stream, device } = this.columns;
    if (!cells[start]) return;
    const lane = this.spans.numberOf("lanes", [cells[device], cells[stream] ? `stream ${cells[stream]}` : "copies"].filter(Boolean).join(" · "));
    this.spans.add(lane, cells[name], Number(cells[start]) * NANOSECOND, Number(cells[time]) * NANOSECOND);
  }

  end() {
    if (this.rest) this.row(this.rest);
  }
}
