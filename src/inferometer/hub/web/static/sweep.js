// The Pareto explorer: rows from the hub or from a file, any two columns against each other, the front drawn through.
import { ask, attempt, offerNames } from "./asking.js";
import { byId, colour, dataOf, element, hideTip, showTip } from "./dom.js";
import { count, logTicks, quantity } from "./format.js";

const data = dataOf("data");
const LEFT = 76;
const BOTTOM = 40;
const SHOWN = ["model", "device", "runtime", "weights", "tp", "batch", "prompt", "generate"];
let rows = null;
let points = [];

function told(name, value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (name.startsWith("usd")) return `$${value.toPrecision(3)}`;
  const unit = data.columns[name]?.unit || "1";
  return unit === "1" ? (Number.isInteger(value) ? count(value) : quantity(value, "")) : quantity(value, unit, 3);
}

function options() {
  const names = Object.keys(data.columns);
  const numbers = names.filter((name) => ["number", "whole"].includes(data.columns[name].kind));
  const fill = (id, list, chosen) => byId(id).replaceChildren(...list.map((name) => element("option", { value: name, selected: name === chosen }, data.columns[name].title)));
  fill("x", numbers, "tpot_s");
  fill("y", numbers, "tokens_per_s");
  fill("colour", ["device", "model", "weights", "runtime", "tp", "batch"], "device");
}

function front(found, x, y) {
  const sign = (name) => (data.columns[name].higher ? -1 : 1);
  const sorted = [...found].sort((a, b) => sign(x) * (a.x - b.x) || sign(y) * (a.y - b.y));
  let best = Infinity;
  return sorted.filter((point) => { const cost = sign(y) * point.y; if (cost < best) { best = cost; return true; } return false; });
}

function cells() {
  const x = byId("x").value;
  const y = byId("y").value;
  const by = byId("colour").value;
  const found = [];
  for (let index = 0; index < rows.length; index += 1) {
    const [a, b] = [rows.columns[x][index], rows.columns[y][index]];
    if (!(a > 0) || !(b > 0) || rows.columns.fits?.[index] === false) continue;
    found.push({ index, x: a, y: b, by: String(rows.columns[by][index] ?? "–") });
  }
  return { found, x, y, by };
}

function draw() {
  const box = byId("plane");
  const canvas = box.querySelector("canvas") || box.appendChild(element("canvas", { role: "img", "aria-label": "Rows as points, with the front of the best" }));
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [box.clientWidth, box.clientHeight];
  canvas.width = wide * ratio;
  canvas.height = high * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, wide, high);
  if (!rows) return;
  const { found, x, y } = cells();
  points = found;
  const best = front(found, x, y);
  byId("told").textContent = `${count(rows.length)} rows · ${count(found.length)} that can be · ${count(best.length)} on the front`;
  if (!found.length) { list([]); return; }
  // One by one: a file may have more rows than a call takes arguments.
  const ends = (name) => [found.reduce((low, point) => Math.min(low, point[name]), Infinity) / 1.2, found.reduce((most, point) => Math.max(most, point[name]), 0) * 1.2];
  const plane = { x: ends("x"), y: ends("y"), wide: wide - LEFT - 26, high: high - BOTTOM - 10 };
  plane.at = (point) => [LEFT + plane.wide * Math.log(point.x / plane.x[0]) / Math.log(plane.x[1] / plane.x[0]), 10 + plane.high * (1 - Math.log(point.y / plane.y[0]) / Math.log(plane.y[1] / plane.y[0]))];
  axes(pen, plane, x, y, high);
  const inks = legend(found);
  pen.globalAlpha = found.length > 600 ? 0.4 : 0.6;
  for (const point of found) { [point.px, point.py] = plane.at(point); pen.fillStyle = inks.get(point.by); pen.beginPath(); pen.arc(point.px, point.py, 3, 0, 7); pen.fill(); }
  pen.globalAlpha = 1;
  pen.strokeStyle = colour("ink");
  pen.beginPath();
  for (const point of best) pen.lineTo(point.px, point.py);
  pen.stroke();
  for (const point of best) { pen.fillStyle = inks.get(point.by); pen.strokeStyle = colour("raised"); pen.beginPath(); pen.arc(point.px, point.py, 5.5, 0, 7); pen.fill(); pen.stroke(); }
  list(best);
}

function axes(pen, plane, x, y, high) {
  pen.font = "11px system-ui, sans-serif";
  pen.strokeStyle = colour("line");
  pen.fillStyle = colour("soft");
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const tick of logTicks(...plane.y)) { const [, at] = plane.at({ x: plane.x[0], y: tick }); pen.beginPath(); pen.moveTo(LEFT, at); pen.lineTo(LEFT + plane.wide, at); pen.stroke(); pen.fillText(told(y, tick), LEFT - 6, at); }
  pen.textAlign = "center";
  let last = -100;
  for (const tick of logTicks(...plane.x)) { const [at] = plane.at({ x: tick, y: plane.y[0] }); pen.beginPath(); pen.moveTo(at, 10); pen.lineTo(at, 10 + plane.high); pen.stroke(); if (at - last > 52) { pen.fillText(told(x, tick), at, high - BOTTOM + 14); last = at; } }
  pen.fillStyle = colour("ink");
  pen.fillText(data.columns[x].title, LEFT + plane.wide / 2, high - 8);
  pen.textAlign = "left";
  pen.fillText(data.columns[y].title, 4, 8);
}

function legend(found) {
  const names = [...new Set(found.map((point) => point.by))].sort();
  const inks = new Map(names.map((name, place) => [name, data.colours[place % data.colours.length]]));
  byId("legend").replaceChildren(...[...inks].map(([name, ink]) => { const swatch = element("i"); swatch.style.background = ink; return element("span", {}, swatch, name); }));
  return inks;
}

function list(best) {
  const [x, y] = [byId("x").value, byId("y").value];
  const shown = [...SHOWN.filter((name) => rows.columns[name]?.some((value) => value !== null)), x, y, "peak_memory_bytes"];
  const names = [...new Set(shown)];
  if (!best.length) { byId("front").replaceChildren(element("p", { class: "none" }, "No row has both numbers and fits into memory.")); return; }
  byId("front").replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { class: data.columns[name].kind === "text" ? "" : "number" }, data.columns[name].title)))),
    element("tbody", {}, ...best.slice(0, 200).map((point) => element("tr", {}, ...names.map((name) => element("td", { class: data.columns[name].kind === "text" ? "" : "number" }, told(name, rows.columns[name][point.index]))))))));
}

function listOf(id) {
  return byId(id).value.split(",").map((word) => word.trim()).filter(Boolean);
}

async function sweep(event) {
  event?.preventDefault();
  const numbers = (id) => listOf(id).map(Number);
  const asked = { models: listOf("models"), devices: listOf("devices"), weights: listOf("weights"), batch: numbers("batch"), prompt: numbers("prompt"), generate: numbers("generate"), tp: numbers("tp") };
  byId("told").textContent = "…";
  showSame(asked);
  await attempt(async () => {
    const found = await ask("POST", "/sweeps", asked);
    rows = { length: found.rows, columns: found.columns };
  });
  if (rows) draw(); else byId("told").textContent = "No rows yet";
}

// The same question elsewhere; a name that a shell would take apart is quoted
function showSame({ models, devices, ...lists }) {
  const quoted = (text) => (/^[\w.,:/@+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const given = Object.entries(lists).filter(([, values]) => values.length);
  const words = [["models", models], ["on", devices], ...given].map(([name, values]) => `--${name} ${quoted(values.join(","))}`);
  byId("command").textContent = `inferometer sweep ${words.join(" ")}`;
  const named = given.map(([name, values]) => `${name}=${JSON.stringify(values)}`);
  byId("python").textContent = `import inferometer\n\nrows = inferometer.sweep(${[JSON.stringify(models), JSON.stringify(devices), ...named].join(", ")})`;
}

function split(line) {
  const cells = [];
  const pattern = /("(?:[^"]|"")*"|[^,]*)(,|$)/gy;
  for (let match = pattern.exec(line); match; match = pattern.exec(line)) {
    cells.push(match[1].startsWith('"') ? match[1].slice(1, -1).replaceAll('""', '"') : match[1]);
    if (match[2] === "") break;
  }
  return cells;
}

async function openFile(event) {
  const [file] = event.target.files;
  if (!file) return;
  const lines = (await file.text()).split(/\r?\n/).filter(Boolean);
  const names = split(lines[0]);
  byId("problem").hidden = names.includes("model") && names.includes("tpot_s");
  byId("problem").textContent = `${file.name} is no CSV file of a sweep.`;
  if (!byId("problem").hidden) return;
  const columns = Object.fromEntries(names.filter((name) => name in data.columns).map((name) => [name, []]));
  for (const line of lines.slice(1)) {
    split(line).forEach((text, place) => {
      const name = names[place];
      if (!(name in columns)) return;
      const { kind } = data.columns[name];
      columns[name].push(text === "" ? null : kind === "text" ? text : kind === "flag" ? text.toLowerCase() === "true" : Number(text));
    });
  }
  rows = { length: lines.length - 1, columns };
  draw();
}

function hover(event) {
  const box = byId("plane").getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let best = null;
  let near = 144;
  for (const point of points) { const far = (point.px - x) ** 2 + (point.py - y) ** 2; if (far < near) { near = far; best = point; } }
  if (!best) { hideTip(); return; }
  const value = (name) => told(name, rows.columns[name]?.[best.index]);
  showTip(event, `${value("model")} on ${value("device")}`, [...SHOWN.slice(2), byId("x").value, byId("y").value].map((name) => [data.columns[name].title, value(name)]).filter(([, text]) => text !== "–"));
}

options();
let named = null;
for (const list of ["models", "devices"]) byId(list).addEventListener("focus", () => { named ??= offerNames({ models: "known-models", devices: "known-devices" }); });
byId("models").value = data.asked.models.join(", ");
byId("devices").value = data.asked.devices.join(", ");
byId("ask").addEventListener("submit", sweep);
byId("file").addEventListener("change", openFile);
for (const id of ["x", "y", "colour"]) byId(id).addEventListener("change", draw);
byId("plane").addEventListener("pointermove", hover);
byId("plane").addEventListener("pointerleave", hideTip);
new ResizeObserver(draw).observe(byId("plane"));
document.addEventListener("themechange", draw);
sweep();
