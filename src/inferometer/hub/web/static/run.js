// The run page: the layer chart and the model table that know of each other, the bars, and what opens on demand.
import { drawBars } from "./bars.js";
import { drawCharts } from "./charts.js";
import { byId, colour, dataOf, debounced, element, writeMoments } from "./dom.js";
import { drawDonut, inks } from "./donut.js";
import { Flame } from "./flame.js";
import { count, quantity, share } from "./format.js";
import { Grid } from "./grid.js";
import { LayerChart } from "./layer_chart.js";
import { drawLine } from "./line.js";
import { drawMetrics } from "./metrics.js";
import { ModelGraph } from "./model_graph.js";

const PHASE_INKS = ["cpu", "npu", "gpu", "dsp", "tpu"];

function columnsOf(rows, chart) {
  const time = (index) => chart.sum("time_s", index);
  const text = (name) => (index) => rows[name][index] ?? "–";
  const columns = [
    { heading: "#", title: "Place in the order of execution", width: 3.2, number: true, value: (i) => i, show: (i) => String(i + 1) },
    { heading: "Layer", title: "Layer", tail: true, width: 10, grow: 2.4, value: (i) => rows.name[i], show: (i) => rows.name[i] + (rows.fused && rows.fused[i] ? ` +${rows.fused[i] - 1}` : "") },
    rows.kind && { heading: "Kind", title: "Kind of op", width: 6.4, grow: 1, value: (i) => rows.kind[i], show: text("kind") },
    rows.unit && rows.unit.some((each) => each !== rows.unit[0]) && { heading: "Unit", title: "What ran it", width: 3.6, value: (i) => rows.unit[i], show: text("unit") },
    rows.count && rows.count.some((each) => each > 1) && { heading: "×", title: "Equal ones counted together", width: 3.4, number: true, value: (i) => rows.count[i], show: (i) => count(rows.count[i]) },
    { heading: "Time", title: "Time in the chosen phase, or in one request", width: 5.4, number: true, value: time, show: (i) => quantity(time(i), "s") },
    { heading: "Share", title: "Share of the phase, or of the request", width: 4.4, number: true, value: time, show: (i) => share(time(i), chart.whole()) },
    ...["min_s", "max_s"].map((name) => rows[name] && { heading: name === "min_s" ? "Least" : "Most", title: `${name === "min_s" ? "Shortest" : "Longest"} of the steps that were timed; choose a phase`, width: 6, number: true, value: (i) => chart.one(name, i), show: (i) => quantity(chart.one(name, i), "s") }),
    rows.growth && { heading: "Growth", title: "From the first step to the last, where there is a trend; choose a phase", width: 4.8, number: true, value: (i) => chart.one("growth", i), show: (i) => grown(chart.one("growth", i)) },
    rows.predicted_s && { heading: "Predicted", title: "Predicted time", width: 5.6, number: true, value: (i) => chart.sum("predicted_s", i), show: (i) => quantity(chart.sum("predicted_s", i), "s") },
    rows.floor_s && { heading: "Floor", title: "Time at every peak", width: 5, number: true, value: (i) => chart.sum("floor_s", i), show: (i) => quantity(chart.sum("floor_s", i), "s") },
    rows.floor_s && { heading: "Of floor", title: "Floor over time", width: 4.6, number: true, value: (i) => chart.sum("floor_s", i) / time(i), show: (i) => share(chart.sum("floor_s", i), time(i)) },
    rows.flops && { heading: "Work", title: "Operations", width: 6.2, number: true, value: (i) => chart.sum("flops", i), show: (i) => quantity(chart.sum("flops", i), "FLOP", 3) },
    rows.bytes && { heading: "Moved", title: "Bytes moved", width: 5, number: true, value: (i) => chart.sum("bytes", i), show: (i) => quantity(chart.sum("bytes", i), "B", 3) },
    rows.bound && { heading: "Bound by", title: "What bounds it", width: 5.2, value: (i) => rows.bound[i], show: text("bound") },
    rows.rung && { heading: "Predicted by", title: "The source of its predicted time", width: 7, grow: 1, value: (i) => rows.rung[i], show: text("rung") },
    rows.kernel && { heading: "Ran as", title: "The engine's name for it", tail: true, width: 6, grow: 1.2, value: (i) => rows.kernel[i], show: text("kernel") },
  ];
  return columns.filter(Boolean);
}

function grown(growth) {
  return growth === null ? "–" : `${growth < 0 ? "−" : "+"}${Math.abs(100 * growth).toFixed(0)} %`;
}

// Time by kind or unit, with what is in no layer, or the number of ops. Times add up to the phase, or to the request.
function summed(rows, chart, key, mode) {
  const found = new Map();
  const add = (name, value) => found.set(name, (found.get(name) || 0) + value);
  for (let index = 0; index < rows.name.length; index += 1) {
    const seconds = chart.sum("time_s", index);
    if (seconds === null) continue;
    add((rows[key] && rows[key][index]) || "unknown", mode === "latency" ? seconds : (rows.count ? rows.count[index] : 1));
  }
  if (mode === "latency") {
    for (const part of rows.outside) {
      if (part.time_s > 0 && (part.phase < 0 ? chart.phase < 0 : chart.phases().includes(part.phase))) add(part[key], part.time_s * (part.phase < 0 ? 1 : chart.times(part.phase)));
    }
  }
  return [...found].map(([name, value]) => ({ name, value })).sort((a, b) => b.value - a.value);
}

function unitInk(rows) {
  return (name) => colour(name.toLowerCase()) || rows.colours[name] || colour("rest");
}

function drawUnits(rows, chart) {
  const times = summed(rows, chart, "unit", "latency");
  const counts = new Map(summed(rows, chart, "unit", "count").map((row) => [row.name, row.value]));
  for (const row of times) row.title = `${row.name}: ${quantity(row.value, "s")}, ${count(counts.get(row.name) || 0)} ops`;
  drawBars(byId("units"), times, (value) => quantity(value, "s", 3), unitInk(rows));
  for (const row of byId("units").children) {
    if (counts.has(row.dataset.name)) row.querySelector(".name").textContent += ` · ${count(counts.get(row.dataset.name))} ops`;
  }
}

function drawLegend(rows, chart) {
  const ink = unitInk(rows);
  const known = chart.phase < 0
    ? rows.phases.map((phase, index) => [phase.name, colour(PHASE_INKS[index % PHASE_INKS.length])])
    : [...new Set(rows.unit || [])].filter(Boolean).map((unit) => [unit, ink(unit)]);
  byId("legend").replaceChildren(...known.map(([name, paint]) => {
    const swatch = element("i");
    swatch.style.background = paint;
    return element("span", {}, swatch, name);
  }));
}

function closing(rows, chart) {
  const parts = chart.phases().map((phase) => {
    const inside = rows.time_s[phase].reduce((total, value) => total + (value || 0), 0);
    const { name, time_s: whole } = rows.phases[phase];
    const outside = rows.outside.filter((part) => part.phase === phase && Math.abs(part.time_s) > 1e-4 * whole);
    return `${name}: ${quantity(inside, "s", 3)} in layers${outside.map((part) => ` + ${quantity(part.time_s, "s", 3)} ${part.kind}`).join("")}`;
  });
  byId("closing").textContent = parts.join(" · ");
}

function buildLayers(rows) {
  let grid = null;
  let graph = null;
  // A layer that is chosen in one of the four is shown in the others.
  const choose = (index, by) => {
    if (by !== chart) chart.select(index, false);
    if (by !== grid) grid.select(index, false, by !== graph);
    if (by !== flame) flame.select(index);
    if (graph && by !== graph) graph.showRow(index);
  };
  const chart = new LayerChart(byId("layer-chart"), rows, (index) => choose(index, chart));
  const flame = new Flame(byId("flame"), rows, (index) => choose(index, flame));
  const chosen = { kind: null, unit: null };
  grid = new Grid(byId("layer-table"), columnsOf(rows, chart), rows.name.length, (index) => choose(index, grid));
  drawGraph(rows, chart, (index) => choose(index, graph)).then((drawn) => { graph = drawn; });
  let mode = "latency";
  const again = () => {
    const kinds = summed(rows, chart, "kind", mode);
    const ink = inks(summed(rows, chart, "kind", "latency").map((row) => row.name));
    const written = mode === "latency" ? (value) => quantity(value, "s", 3) : count;
    drawBars(byId("kinds"), kinds, written, ink);
    drawDonut(byId("kind-donut"), kinds, written, ink, (name) => narrow("kind", name));
    byId("kinds").dataset.mode = mode;
    flame.show(chart.phase, (index) => ink((rows.kind && rows.kind[index]) || "unknown"));
    drawUnits(rows, chart);
    drawLegend(rows, chart);
    closing(rows, chart);
    mark();
    grid.refresh();
    graph?.refresh();
  };
  const mark = () => {
    for (const key of ["kind", "unit"]) for (const row of byId(`${key}s`).children) row.setAttribute("aria-pressed", String(chosen[key] === row.dataset.name));
  };
  const narrow = (key, name) => {
    chosen[key] = chosen[key] === name ? null : name;
    mark();
    find();
  };
  for (const key of ["kind", "unit"]) {
    byId(`${key}s`).addEventListener("click", (event) => { const row = event.target.closest(".row"); if (row && rows[key]?.includes(row.dataset.name)) narrow(key, row.dataset.name); });
  }
  choosePhases(rows, chart, again);
  chooseOverlays(rows, chart);
  for (const button of byId("kind-mode").children) {
    button.addEventListener("click", () => {
      mode = button.dataset.mode;
      for (const each of byId("kind-mode").children) each.setAttribute("aria-pressed", String(each === button));
      again();
    });
  }
  byId("closer").addEventListener("click", () => chart.zoom(0.5, chart.selected >= 0 ? chart.selected : undefined));
  byId("farther").addEventListener("click", () => chart.zoom(2));
  byId("whole").addEventListener("click", () => chart.zoom(1e9));
  const find = findLayers(rows, grid, chosen);
  document.addEventListener("themechange", again);
  again();
}

// The graph, when it comes in sight: it is large, and many look at the times alone.
async function drawGraph(rows, chart, chosen) {
  const box = byId("model-graph");
  const stored = dataOf("graph-data");
  if (!stored) await seen(box);
  const data = stored || await fetch(box.dataset.src).then((answer) => (answer.ok ? answer.json() : null), () => null);
  if (!data) { byId("graph-panel").remove(); return null; }
  const graph = new ModelGraph(box, data, rows, (name, row) => chart.sum(name, row), chosen);
  const told = [data.note, data.left ? `${count(data.left)} ${data.left === 1 ? "row" : "rows"} of the table ${data.left === 1 ? "is" : "are"} in no layer of the graph.` : null];
  byId("graph-told").textContent = told.filter(Boolean).join(" ");
  chooseColours(rows, graph);
  findBoxes(graph);
  byId("graph-closer").addEventListener("click", () => graph.zoom(1.4));
  byId("graph-farther").addEventListener("click", () => graph.zoom(0.7));
  byId("graph-fit").addEventListener("click", () => graph.fit());
  const unfold = byId("unfold");
  unfold.hidden = !data.folds.length;
  unfold.addEventListener("click", () => {
    graph.unfold(!graph.all);
    unfold.setAttribute("aria-pressed", String(graph.all));
  });
  byId("graph-svg").addEventListener("click", () => {
    const link = element("a", { href: URL.createObjectURL(new Blob([graph.svg()], { type: "image/svg+xml" })), download: "model-graph.svg" });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  return graph;
}

function seen(box) {
  return new Promise((done) => {
    const watcher = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) { watcher.disconnect(); done(); } }, { rootMargin: "200px" });
    watcher.observe(box);
  });
}

function chooseColours(rows, graph) {
  const predicted = rows.predicted_s && rows.predicted_s.some((column, phase) => column.some((value, row) => value !== null && value !== rows.time_s[phase][row]));
  const known = [["time", true], ["bound", Boolean(rows.bound)], ["unit", Boolean(rows.unit)], ["error", Boolean(predicted)]];
  const titles = { time: "The time of a layer", bound: "What bounds it", unit: "What ran it", error: "How far the prediction was off" };
  const box = byId("graph-by");
  const legend = () => byId("graph-legend").replaceChildren(...graph.legend().map(([name, paint]) => {
    const swatch = element("i");
    swatch.style.background = paint;
    return element("span", {}, swatch, name);
  }));
  box.replaceChildren(...known.filter(([, there]) => there).map(([name]) => element("button", { type: "button", "data-by": name, title: titles[name], "aria-pressed": String(name === graph.by), onclick: (event) => {
    for (const each of box.children) each.setAttribute("aria-pressed", String(each === event.currentTarget));
    graph.by = name;
    graph.draw();
    legend();
  } }, name)));
  document.addEventListener("themechange", legend);
  graph.changed = legend;
  legend();
  const fallen = byId("fallbacks");
  const many = graph.fallenLayers();
  fallen.hidden = !many;
  fallen.textContent = `${count(many)} not on ${graph.main}`;
  let at = -1;
  fallen.addEventListener("click", () => { const each = graph.fallbacks(); at = (at + 1) % each.length; graph.go(each[at]); });
}

function findBoxes(graph) {
  const field = byId("find-box");
  let at = -1;
  field.addEventListener("input", debounced(() => { const found = graph.find(field.value); at = 0; if (found.length) graph.go(found[0], false); }, 80));
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const found = graph.find(field.value);
    if (found.length) { at = (at + 1) % found.length; graph.go(found[at]); }
  });
}

function choosePhases(rows, chart, again) {
  const box = byId("phases");
  if (rows.phases.length < 2) { box.hidden = true; return; }
  const choices = [["all", -1], ...rows.phases.map((phase, index) => [phase.name, index])];
  box.replaceChildren(...choices.map(([name, index]) => element("button", { type: "button", "aria-pressed": String(chart.phase === index), onclick: (event) => {
    for (const each of box.children) each.setAttribute("aria-pressed", String(each === event.currentTarget));
    chart.show(index);
    again();
  } }, name)));
}

function chooseOverlays(rows, chart) {
  for (const [id, name] of [["with-predicted", "predicted_s"], ["with-floor", "floor_s"]]) {
    const label = byId(id);
    label.hidden = !rows[name];
    label.firstElementChild.addEventListener("change", (event) => { chart.overlays[name] = event.target.checked; chart.draw(); });
  }
}

function findLayers(rows, grid, chosen) {
  const texts = ["name", "kind", "unit", "block", "kernel"].filter((name) => rows[name]);
  const find = () => {
    const words = byId("find-layer").value.toLowerCase().split(/\s+/).filter(Boolean);
    const only = Object.entries(chosen).filter(([, name]) => name !== null);
    grid.keep((index) => only.every(([key, name]) => rows[key][index] === name)
      && words.every((word) => texts.some((name) => String(rows[name][index] ?? "").toLowerCase().includes(word))));
    const told = only.map(([, name]) => name).join(", ");
    byId("layer-count").textContent = `${count(grid.order.length)} of ${count(rows.name.length)} layers${told ? `: ${told}` : ""}`;
  };
  find();
  byId("find-layer").addEventListener("input", debounced(find, 80));
  return find;
}

async function explain() {
  const slot = byId("findings-slot");
  if (!slot) return;
  const answer = await fetch(slot.dataset.src).catch(() => null);
  if (!answer?.ok) { slot.remove(); return; }
  const parts = new DOMParser().parseFromString(await answer.text(), "text/html");
  slot.classList.remove("slot");
  slot.replaceChildren(...parts.getElementById("part-findings").childNodes);
  byId("attribution-slot").replaceChildren(...parts.getElementById("part-attribution").childNodes);
}

function openDrawing() {
  const box = byId("dataflow");
  box?.addEventListener("toggle", () => {
    const image = box.querySelector("img");
    if (!box.open || !image || image.src) return;
    image.addEventListener("error", () => image.replaceWith("There is nothing to draw."));
    image.src = image.dataset.src;
  });
}

const rows = dataOf("layers");
if (rows && rows.name.length) buildLayers(rows);
const memory = dataOf("memory-data");
if (memory && byId("memory")) {
  const inks = { weights: "cpu", "KV cache": "tpu" };
  drawBars(byId("memory"), Object.entries(memory).map(([name, value]) => ({ name, value })), (value) => quantity(value, "B", 3), (name) => colour(inks[name] || "rest"));
}
const held = dataOf("held-data");
if (held && byId("held")) drawLine(byId("held"), held, "B", "Memory that the model held while it was measured");
const metrics = dataOf("metrics-data");
if (metrics) drawMetrics(byId("metrics"), metrics);
openDrawing();
explain();
drawCharts();
writeMoments();
