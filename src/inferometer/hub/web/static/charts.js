// Charts drawn by Vega from specs: loaded when the first comes in sight, in the page's colours, without eval.
import { byId, dataOf, element } from "./dom.js";

// Named and not looked up: a drawn chart follows the page from light to dark by itself.
const INKS = { "#1f2933": "ink", "#7b8794": "soft", "#e4e7eb": "line", white: "raised", "#ffffff": "raised" };
const NARROW = 560;
const SUBTITLE_LETTER = 6.2; // pixels, of a subtitle
const AXES = 70; // what axes take of a chart's width
const SIGNS = ["scroll", "keydown", "mouseleave"]; // the last: to the browser's menu
let loading = null;

function vega() {
  if (window.vegaEmbed) return Promise.resolve();
  loading = loading || new Promise((done, failed) => {
    const script = element("script", { src: "/static/vega.js" });
    script.addEventListener("load", done);
    script.addEventListener("error", () => failed(new Error("Charts need vl-convert on the hub's machine: pip install 'inferometer[charts]'")));
    document.head.append(script);
  });
  return loading;
}

function inked(value) {
  if (typeof value === "string") return value in INKS ? `var(--${INKS[value]})` : value;
  if (Array.isArray(value)) return value.map(inked);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, name === "values" ? each : inked(each)]));
  return value;
}

function tooltip(handler, event, item, value) {
  const tip = byId("tip");
  if (value === null || value === undefined || value === "") { tip.hidden = true; return; }
  const pairs = typeof value === "object" ? Object.entries(value) : [["", String(value)]];
  tip.replaceChildren(element("table", {}, element("tbody", {}, ...pairs.map(([name, each]) => element("tr", {}, element("td", { class: "quiet" }, name), element("td", {}, String(each)))))));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, window.innerWidth - box.width - 8))}px`;
  tip.style.top = `${Math.max(8, Math.min(event.clientY + 16, window.innerHeight - box.height - 8))}px`;
}

function wrapped(line, most) {
  const lines = [""];
  for (const word of line.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (longer.length > most && lines.at(-1)) lines.push(word); else lines[lines.length - 1] = longer;
  }
  return lines;
}

// The panel has the title already; what the subtitle says stays. Vega's own version is the one that draws.
function untitled(spec, wide) {
  const { $schema: _, title, ...rest } = spec;
  const said = title && title.subtitle ? [title.subtitle].flat().flatMap((line) => wrapped(line, Math.floor(wide / SUBTITLE_LETTER))) : null;
  return said ? { ...rest, title: { text: said, fontSize: 12, fontWeight: 400, color: "#7b8794", offset: 10, anchor: "start", frame: "group" } } : rest;
}

async function embed(figure, spec) {
  await vega();
  const themed = { ...inked(untitled(spec, figure.clientWidth - AXES)), background: null, padding: 4 };
  // A height by the row cannot be fitted to a width without a warning: as many rows as there are is the same.
  if (themed.height?.step && themed.data?.values) themed.height = themed.height.step * themed.data.values.length;
  const fixed = figure.dataset.chart.startsWith("roofline"); // its names are placed for its width: it came in the right one
  const narrow = figure.clientWidth < 560 && typeof themed.width === "number" && !fixed;
  if ("wide" in figure.dataset && !narrow) Object.assign(themed, { width: figure.clientWidth - 24, autosize: { type: "fit-x", contains: "padding" } });
  if (narrow) Object.assign(themed, { width: figure.clientWidth - 20, autosize: { type: "fit-x", contains: "padding" }, config: { ...themed.config, legend: { ...themed.config?.legend, orient: "bottom", columns: 2 } } });
  // Its errors are told, not its warnings: a scale is warned of before its first row has come.
  await window.vegaEmbed(figure, themed, { ast: true, logLevel: 1, actions: false, renderer: "svg", defaultStyle: false, tooltip });
  figure.dataset.drawn = "true";
}

async function specOf(figure, specs) {
  const wide = figure.clientWidth;
  if (specs && wide < NARROW && specs[`${figure.dataset.chart}-narrow`]) return specs[`${figure.dataset.chart}-narrow`];
  if (specs && specs[figure.dataset.chart]) return specs[figure.dataset.chart];
  const sized = figure.dataset.chart.startsWith("roofline") ? `?width=${Math.round(wide)}` : "";
  const answer = await fetch(figure.dataset.src + sized);
  if (!answer.ok) throw new Error(`This chart cannot be had (${answer.status}).`);
  return answer.json();
}

export function drawCharts() {
  const specs = dataOf("charts");
  const drawn = new Set();
  const draw = async (figure) => {
    drawn.add(figure);
    try {
      await embed(figure, await specOf(figure, specs));
    } catch (error) {
      figure.classList.add("failed");
      figure.textContent = error.message;
    }
  };
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "200px" });
  const figures = [...document.querySelectorAll("[data-chart]")];
  for (const figure of figures) watcher.observe(figure);
  // The others before somebody comes to them, or prints: a page that is only opened need not load Vega.
  const rest = async () => {
    for (const sign of SIGNS) document.removeEventListener(sign, rest);
    for (const figure of figures) if (!drawn.has(figure) && figure.clientWidth) { watcher.unobserve(figure); await draw(figure); }
  };
  for (const sign of SIGNS) document.addEventListener(sign, rest, { passive: true });
}
