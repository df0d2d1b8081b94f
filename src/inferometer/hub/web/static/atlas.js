// The atlas: published times by device or model, or against what we predict; a click leads to the source.
import { ask } from "./asking.js";
import { byId, colour, dataOf, element, hideTip, showTip } from "./dom.js";
import { count, logTicks, quantity } from "./format.js";

const data = dataOf("data");
const FIELDS = ["model", "device", "runtime", "quantity", "unit", "dataset"];
const HEADS = [["date", "Date"], ["device", "Device"], ["model", "Model"], ["runtime", "Runtime"], ["formats", "Formats"], ["sizes", "Sizes"], ["quantity", "What"]];
const FIRST = ["date", "device", "model", "quantity"];
const MOST_BANDS = 24;
const MOST_INKS = 11;
const LISTED = 100; // rows of a page of the list
const BOTTOM = 40;
let rows = null;
let points = [];
let listed = LISTED;

function text(name, index) {
  return rows.texts[name].values[rows.texts[name].codes[index]];
}

function fill() {
  for (const name of FIELDS) {
    byId(name).value = data.asked[name] || "";
    byId(`known-${name}`).replaceChildren(...(data.suggested[name] || []).map((each) => element("option", { value: each })));
  }
}

function asked() {
  const query = new URLSearchParams();
  for (const name of FIELDS) if (byId(name).value.trim()) query.set(name, byId(name).value.trim());
  return query;
}

async function show(event) {
  event?.preventDefault();
  const query = asked();
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  if (byId("predict").checked) query.set("predict", "true");
  byId("told").textContent = byId("predict").checked ? "Predicting …" : "Reading …";
  let problem = null;
  rows = await ask("GET", `/atlas?${query}`).catch((error) => { problem = error.message; return null; });
  listed = LISTED;
  draw();
  list();
  if (problem) byId("told").textContent = problem;
}

// The groups with the most rows get a band each, in the order of their median.
function bands(by) {
  const groups = new Map();
  for (let index = 0; index < rows.rows; index += 1) { const name = text(by, index) ?? "–"; (groups.get(name) || groups.set(name, []).get(name)).push(index); }
  const most = [...groups].sort((a, b) => b[1].length - a[1].length).slice(0, MOST_BANDS);
  const median = (list_) => { const values = list_.map((index) => rows.seconds[index]).sort((a, b) => a - b); return values[Math.floor(values.length / 2)]; };
  return { list: most.sort((a, b) => median(a[1]) - median(b[1])), left: groups.size - most.length };
}

function inks(by, found) {
  const counts = new Map();
  for (const point of found) counts.set(point.ink, (counts.get(point.ink) || 0) + 1);
  const names = [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const made = new Map(names.map((name, place) => [name, place < MOST_INKS ? data.colours[place % data.colours.length] : colour("soft")]));
  byId("legend").replaceChildren(...names.slice(0, MOST_INKS).map((name) => { const swatch = element("i"); swatch.style.background = made.get(name); return element("span", {}, swatch, name); }), ...(names.length > MOST_INKS ? [element("span", { class: "quiet" }, `and ${names.length - MOST_INKS} more`)] : []));
  return made;
}

function sized(high) {
  const box = byId("plane");
  box.style.height = `${high}px`;
  const canvas = box.querySelector("canvas") || box.appendChild(element("canvas", { role: "img", "aria-label": "Published times as points" }));
  const ratio = window.devicePixelRatio || 1;
  canvas.width = box.clientWidth * ratio;
  canvas.height = high * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, box.clientWidth, high);
  pen.font = "11px system-ui, sans-serif";
  return { pen, wide: box.clientWidth, high };
}

function draw() {
  points = [];
  if (!rows || !rows.rows) { sized(60); byId("legend").replaceChildren(); if (rows) byId("told").textContent = "Nobody has published such a measurement."; byId("count").textContent = ""; return; }
  byId("count").textContent = count(rows.total);
  if (rows.predicted_s.some((value) => value !== null)) drawAgainst();
  else drawBands();
}

function drawBands() {
  const by = byId("by").value;
  const ink = byId("colour").value;
  const { list: found, left } = bands(by);
  const { pen, wide, high } = sized(found.length * 22 + BOTTOM + 14);
  const LEFT = Math.min(230, wide * 0.36);
  const shown = found.flatMap(([, list_]) => list_);
  const values = shown.map((index) => rows.seconds[index]);
  const ends = [Math.min(...values) / 1.3, Math.max(...values) * 1.3];
  const across = (value) => LEFT + (wide - LEFT - 16) * Math.log(value / ends[0]) / Math.log(ends[1] / ends[0]);
  const some = rows.rows < rows.total ? `${count(rows.rows)} of ${count(rows.total)} measurements` : `${count(rows.total)} measurement${rows.total === 1 ? "" : "s"}`;
  byId("told").textContent = rows.texts.quantity.values.length > 1 ? `${some}, seconds of what each measured` : `${some}, ${rows.texts.quantity.values[0]}`;
  ticks(pen, ends, across, high);
  pen.textBaseline = "middle";
  found.forEach(([name, list_], place) => {
    const at = 10 + place * 22 + 11;
    pen.strokeStyle = colour("line");
    pen.beginPath(); pen.moveTo(LEFT, at); pen.lineTo(wide - 16, at); pen.stroke();
    pen.fillStyle = colour("ink");
    pen.textAlign = "right";
    pen.fillText(cut(pen, name, LEFT - 10), LEFT - 8, at);
    for (const index of list_) points.push({ index, px: across(rows.seconds[index]), py: at + ((index * 7919) % 11) - 5, ink: text(ink, index) ?? "–" });
  });
  if (byId("predict").checked) byId("told").textContent += "; none of them can be predicted";
  if (left > 0) byId("told").textContent += `; ${left} more ${by}s are not drawn`;
  dots(pen, inks(ink, points));
}

function drawAgainst() {
  const ink = byId("colour").value;
  const { pen, wide, high } = sized(440);
  const LEFT = 70;
  const shown = [];
  for (let index = 0; index < rows.rows; index += 1) if (rows.predicted_s[index] > 0) shown.push(index);
  const values = shown.flatMap((index) => [rows.seconds[index], rows.predicted_s[index]]);
  const ends = [Math.min(...values) / 1.3, Math.max(...values) * 1.3];
  const across = (value) => LEFT + (wide - LEFT - 16) * Math.log(value / ends[0]) / Math.log(ends[1] / ends[0]);
  const up = (value) => 10 + (high - BOTTOM - 10) * (1 - Math.log(value / ends[0]) / Math.log(ends[1] / ends[0]));
  const errors = shown.map((index) => Math.abs(rows.predicted_s[index] / rows.seconds[index] - 1)).sort((a, b) => a - b);
  byId("told").textContent = `${count(shown.length)} of ${count(rows.tried)} rows can be predicted${rows.tried < rows.rows ? " (there was no time for more)" : ""}; median error ${(100 * errors[Math.floor(errors.length / 2)]).toFixed(0)} %`;
  ticks(pen, ends, across, high);
  pen.textAlign = "right";
  pen.fillStyle = colour("soft");
  for (const tick of logTicks(...ends)) pen.fillText(quantity(tick, "s", 2), LEFT - 6, up(tick));
  pen.strokeStyle = colour("soft");
  pen.beginPath(); pen.moveTo(across(ends[0]), up(ends[0])); pen.lineTo(across(ends[1]), up(ends[1])); pen.stroke();
  pen.textAlign = "left";
  pen.fillStyle = colour("ink");
  pen.fillText("predicted", 4, 8);
  for (const index of shown) points.push({ index, px: across(rows.seconds[index]), py: up(rows.predicted_s[index]), ink: text(ink, index) ?? "–" });
  dots(pen, inks(ink, points));
}

function ticks(pen, ends, across, high) {
  pen.strokeStyle = colour("line");
  pen.fillStyle = colour("soft");
  pen.textAlign = "center";
  let last = -100;
  for (const tick of logTicks(...ends)) {
    const at = across(tick);
    pen.beginPath(); pen.moveTo(at, 10); pen.lineTo(at, high - BOTTOM); pen.stroke();
    if (at - last > 52) { pen.fillText(quantity(tick, "s", 2), at, high - BOTTOM + 14); last = at; }
  }
  pen.fillStyle = colour("ink");
  pen.fillText("published", across(Math.sqrt(ends[0] * ends[1])), high - 8);
}

function dots(pen, made) {
  pen.globalAlpha = points.length > 600 ? 0.45 : 0.7;
  for (const point of points) { pen.fillStyle = made.get(point.ink); pen.beginPath(); pen.arc(point.px, point.py, 3.5, 0, 7); pen.fill(); }
  pen.globalAlpha = 1;
}

function cut(pen, name, most) {
  if (pen.measureText(name).width <= most) return name;
  let short = name;
  while (short.length > 3 && pen.measureText(`${short}…`).width > most) short = short.slice(0, -1);
  return `${short}…`;
}

function near(event) {
  const box = byId("plane").getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let best = null;
  let least = 120;
  for (const point of points) { const away = (point.px - x) ** 2 + (point.py - y) ** 2; if (away < least) { least = away; best = point; } }
  return best;
}

function facts(index) {
  return [...HEADS.slice(1).map(([name, title]) => [title, text(name, index)]), ["Published", quantity(rows.seconds[index], "s")],
    ["Predicted", rows.predicted_s[index] === null ? null : quantity(rows.predicted_s[index], "s")], ["Source", [text("source", index), text("date", index)].filter(Boolean).join(", ")]];
}

function list() {
  if (!rows || !rows.rows) { byId("list").replaceChildren(element("p", { class: "none" }, "Nothing to list.")); return; }
  const predicted = rows.predicted_s.some((value) => value !== null);
  const used = HEADS.filter(([name]) => rows.texts[name].values.some((value) => value !== null));
  // The times stand after what was measured where, so that they are in sight on any screen.
  const first = used.filter(([name]) => FIRST.includes(name));
  const rest = used.filter(([name]) => !FIRST.includes(name));
  const titles = (some) => some.map(([, title]) => element("th", {}, title));
  const heads = [...titles(first), element("th", { class: "number" }, "Published"), ...(predicted ? [element("th", { class: "number" }, "Predicted"), element("th", { class: "number" }, "Apart")] : []), ...titles(rest), element("th", {}, "Source")];
  const lines = [];
  for (let index = 0; index < Math.min(rows.rows, listed); index += 1) {
    const link = text("link", index);
    const guess = rows.predicted_s[index];
    const source = text("source", index);
    const cells = (some) => some.map(([name]) => element("td", {}, text(name, index) ?? "–"));
    lines.push(element("tr", {}, ...cells(first), element("td", { class: "number" }, quantity(rows.seconds[index], "s")),
      ...(predicted ? [element("td", { class: "number" }, guess === null ? "–" : quantity(guess, "s")), element("td", { class: "number" }, guess === null ? "–" : `${guess > rows.seconds[index] ? "+" : "−"}${(100 * Math.abs(guess / rows.seconds[index] - 1)).toFixed(0)} %`)] : []), ...cells(rest),
      element("td", {}, link ? element("a", { href: link, rel: "noreferrer", target: "_blank" }, source) : source)));
  }
  byId("list").replaceChildren(element("table", { class: "published" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...lines)), ...(rows.rows > lines.length ? [element("p", { class: "more" }, element("button", { type: "button", onclick: () => { listed += LISTED; list(); } }, "More rows"))] : []), ...(rows.total > lines.length ? [element("p", { class: "quiet" }, `${count(lines.length)} of ${count(rows.total)} listed; \`inferometer atlas --format csv\` has all.`)] : []));
}

fill();
byId("ask").addEventListener("submit", show);
byId("predict").addEventListener("change", show);
for (const id of ["by", "colour"]) byId(id).addEventListener("change", draw);
window.addEventListener("resize", () => { if (rows) draw(); });
const plane = byId("plane");
plane.addEventListener("mousemove", (event) => {
  const point = near(event);
  plane.style.cursor = point ? "pointer" : "";
  if (point) showTip(event, text("model", point.index), facts(point.index));
  else hideTip();
});
plane.addEventListener("mouseleave", hideTip);
plane.addEventListener("click", (event) => {
  const point = near(event);
  const link = point && text("link", point.index);
  if (link) window.open(link, "_blank", "noreferrer");
});
show();
