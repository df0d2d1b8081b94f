// The predict page: every move of a slider asks the cost model again; the last answer asked for is the one shown.
import { ask as hub, offerNames } from "./asking.js";
import { byId, dataOf, debounced, element } from "./dom.js";
import { count, quantity, share } from "./format.js";

const data = dataOf("data");
const SIZES = [1];
for (let at = 1; SIZES.length < 57; at += 1) SIZES.push(Math.round(2 ** (at / 3)));
const STEPS = [...new Set(SIZES)];
const POWERS = Array.from({ length: 13 }, (_, place) => 2 ** place);
const SIDES = [32, 64, 96, 112, 128, 160, 192, 224, 256, 288, 320, 384, 416, 448, 480, 512, 576, 640, 704, 768, 832, 896, 960, 1024, 1152, 1280, 1408, 1536, 1664, 1792, 1920, 2048];
const SLIDERS = { batch: POWERS, prompt: STEPS, generate: STEPS, image: SIDES, tp: POWERS.slice(0, 5) };
const WORDS = ["runtime", "weights", "kv", "activations"];
const FLAGS = Object.fromEntries([...document.querySelectorAll("[data-flag]")].map((field) => [field.id, field.dataset.flag]));
const DEFAULTS = { batch: 1, prompt: 512, generate: 128, tp: 1 };
const chosen = new Set(Object.keys(data.chosen));
let titles = data.chosen;
let turn = 0;

function nearest(values, wanted) {
  return values.reduce((best, value, place) => (Math.abs(Math.log(value / wanted)) < Math.abs(Math.log(values[best] / wanted)) ? place : best), 0);
}

function offered(name) {
  return !document.querySelector(`[data-control="${name}"]`)?.hidden;
}

// What a field holds, as the API takes it; null where it is empty.
function read(field, takes) {
  if (takes === "switch") return field.checked || null;
  const text = field.value.trim();
  if (text === "") return null;
  if (takes === "text") return text;
  if (takes === "texts") return text.split(/[\s,]+/).filter(Boolean);
  return takes === "whole" ? Math.round(Number(text)) : Number(text);
}

// The number is what is asked; the slider beside it only finds one quickly.
function question() {
  const asked = { model: byId("model").value.trim(), devices: [...chosen] };
  for (const name of [...Object.keys(SLIDERS), "context"]) {
    const value = Number(byId(name).value);
    if (offered(name) && byId(name).value !== "" && Number.isFinite(value)) asked[name] = Math.round(value);
  }
  for (const name of WORDS) if (offered(name) && byId(name).value) asked[name] = byId(name).value;
  for (const [name, takes] of Object.entries(FLAGS)) {
    const value = offered(name) ? read(byId(name), takes) : null;
    if (value !== null) asked[name] = value;
  }
  return asked;
}

function remember({ devices, ...asked }) {
  const words = new URLSearchParams(Object.entries(asked).filter(([name, value]) => name === "model" || value !== (name === "tp" ? 1 : null)));
  for (const device of devices) words.append("on", device);
  history.replaceState(null, "", `?${words}`);
}

// Only what means something to this model, and the engines that run it with these weights.
async function fit() {
  const words = new URLSearchParams([...chosen].map((name) => ["on", name]));
  if (byId("weights").value) words.set("weights", byId("weights").value);
  const answer = await fetch(`/api/v1/models/${encodeURIComponent(byId("model").value.trim())}/controls?${words}`).catch(() => null);
  if (!answer || !answer.ok) return;
  const found = await answer.json();
  const { title, parameters, context } = found.model;
  byId("model-facts").textContent = [title, parameters ? `${count(parameters)} parameters` : null, context ? `context ${count(context)}` : null].filter(Boolean).join(" · ");
  const shown = { ...found.sizes, kv: found.kv };
  for (const name of Object.keys(FLAGS)) shown[name] = found.options.includes(name);
  for (const label of document.querySelectorAll("[data-control]")) label.hidden = shown[label.dataset.control] === false;
  for (const group of document.querySelectorAll(".more-controls")) group.hidden = [...group.querySelectorAll(".field")].every((field) => field.hidden);
  if (found.sizes.image && byId("image").value === "" && found.defaults.image) put("image", found.defaults.image);
  byId("calibrations").replaceChildren(...found.calibrations.map((name) => element("option", { value: name })));
  byId("size").placeholder = Object.entries(found.others).map(([name, value]) => `${name}=${value ?? "N"}`).join(", ");
  const kept = byId("runtime").value || data.asked.runtime || "";
  byId("runtime").replaceChildren(element("option", { value: "" }, "the usual one"), ...found.runtimes.map((each) => element("option", { value: each.name }, each.title)));
  byId("runtime").value = found.runtimes.some((each) => each.name === kept) ? kept : "";
}

function put(name, value) {
  byId(name).value = value;
  byId(`${name}-slide`).value = nearest(SLIDERS[name], Number(value) || 1);
}

function interval(phase) {
  return phase && phase.low_s !== null && phase.low_s !== undefined ? `${quantity(phase.low_s, "s", 2)} – ${quantity(phase.high_s, "s", 2)}` : "";
}

function facts(answer) {
  const { summary } = answer;
  const phases = Object.fromEntries(answer.phases.map((phase) => [phase.name, phase]));
  const found = [];
  const add = (name, value, note) => { if (value !== "–") found.push([name, value, note]); };
  add("latency", quantity(summary.latency_s, "s"), interval(phases.forward));
  add("first token", quantity(summary.ttft_s, "s"), interval(phases.prefill));
  add("each token", quantity(summary.tpot_s, "s"), interval(phases.decode));
  add("tokens/s", quantity(summary.tokens_per_s, ""), "");
  add("inputs/s", quantity(summary.inputs_per_s, ""), "");
  add("real time", quantity(summary.real_time_factor, ""), "seconds for one of audio");
  add("whole request", quantity(summary.e2e_s, "s"), "");
  add("energy", quantity(summary.energy_j, "J"), "");
  const { served } = answer;
  if (served) {
    const met = served.meets === null ? "" : served.meets ? "as asked" : `${quantity(served.tokens_per_user, "", 3)} were asked for`;
    add(`${count(served.users)} users: each`, `${quantity(served.tokens_per_s_per_user, "", 3)} tokens/s`, met);
    add("all users", `${quantity(served.tokens_per_s, "", 3)} tokens/s`, `${count(served.batch)} at once on each replica`);
    add("first token, served", quantity(served.ttft_s, "s"), `${quantity(served.ttft_low_s, "s", 2)} – ${quantity(served.ttft_high_s, "s", 2)}`);
    if (served.usd_per_million_tokens !== null) add("a million tokens, served", `$${served.usd_per_million_tokens.toPrecision(3)}`, "");
  }
  if (summary.usd_per_million_tokens !== null) add("a million tokens", `$${summary.usd_per_million_tokens.toPrecision(3)}`, "");
  if (summary.usd_per_million_inferences !== null) add("a million inferences", `$${summary.usd_per_million_inferences.toPrecision(3)}`, "");
  add("carbon", quantity(summary.co2e_g, "g"), "CO₂e a request");
  add("battery lasts", summary.battery_s >= 3600 ? `${quantity(summary.battery_s / 3600, "", 3)} h` : quantity(summary.battery_s, "s", 3), summary.inferences_per_charge ? `${count(Math.round(summary.inferences_per_charge))} inferences` : "");
  if (summary.frame_headroom !== null) add("left of a frame", `${(100 * summary.frame_headroom).toFixed(0)} %`, summary.frame_headroom < 0 ? "frames are dropped" : "");
  const steady = phases.decode || phases.forward || phases.prefill;
  if (steady && steady.bound) add("bound by", steady.bound, "");
  if (steady && steady.floor_s) add("floor", quantity(steady.floor_s, "s"), "at every peak");
  return found;
}

// What each change would gain, and EdgeProfiler's answer: tables under ours.
function gains(answer) {
  if (!answer.gains.length) return null;
  const said = (gain) => (gain.error ? [gain.error] : [`${gain.gain.toFixed(2)}×`, element("small", {}, ` ${gain.gain_low.toFixed(2)} – ${gain.gain_high.toFixed(2)}`)]);
  const note = (gain) => [gain.phase, gain.throughput_gain !== gain.gain ? `${gain.throughput_gain.toFixed(2)}× the throughput` : null, gain.fits === false ? "does not fit" : null].filter(Boolean).join(", ");
  return beside("What if", answer.gains.map((gain) => [gain.change, gain.error ? "" : note(gain), said(gain)]));
}

function edgeProfiler(answer) {
  const [first] = answer.edgeprofiler;
  if (!first) return null;
  if (first.error) return element("p", { class: "quiet" }, first.error);
  return beside("EdgeProfiler, for one token", answer.edgeprofiler.map((row) => [row.precision, quantity(row.energy_j, "J", 3), [quantity(row.e2e_s, "s", 3)]]));
}

// Who says how long the phase that repeats takes, with the share of it.
function sources(answer) {
  const whole = answer.rungs.reduce((sum, each) => sum + each.time_s, 0);
  const rows = answer.rungs.filter((row) => row.time_s > whole / 1000);
  return rows.length ? beside("Who says so", rows.map((row) => [row.rung, row.origin || "", [share(row.time_s, whole)]])) : null;
}

function beside(title, rows) {
  return element("section", {}, element("h2", {}, title), element("dl", {}, ...rows.flatMap(([name, note, value]) => [element("dt", {}, name, note ? element("small", {}, `  ${note}`) : null), element("dd", {}, ...value)])));
}

function gauge(fit) {
  if (!fit || !fit.capacity_bytes) return null;
  const box = element("div", { class: `gauge${fit.fits === false ? " over" : ""}` });
  const whole = Math.max(fit.capacity_bytes, fit.total_bytes);
  for (const [name, value] of [["weights", fit.weights_bytes], ["kv", fit.kv_bytes], ["rest", fit.total_bytes - fit.weights_bytes - fit.kv_bytes]]) {
    const part = element("i", { class: name, title: `${name}: ${quantity(value, "B", 3)}` });
    part.style.width = `${100 * value / whole}%`;
    box.append(part);
  }
  return box;
}

function fitNote(fit) {
  if (!fit) return null;
  const held = `${quantity(fit.total_bytes, "B", 3)}${fit.capacity_bytes ? ` of ${quantity(fit.capacity_bytes, "B", 3)}` : ""}`;
  const room = [fit.longest_context ? `longest context ${count(fit.longest_context)}` : null, fit.largest_batch ? `largest batch ${count(fit.largest_batch)}` : null].filter(Boolean);
  if (fit.fits === false && fit.devices_at_least) room.push(`at least ${count(fit.devices_at_least)} devices`);
  return element("p", { class: "gauge-note" }, [held, ...room].join(" · "));
}

// A model that makes no tokens has no cache, whatever format it would be in.
function formats({ precision, phases }) {
  const cache = phases.some((phase) => phase.name === "decode") ? precision.kv : null;
  return [precision.weights ? `${precision.weights} weights` : null, cache ? `${cache} cache` : null].filter(Boolean).join(", ");
}

function card(answer) {
  const verdict = answer.error ? ["bad", "cannot be"] : answer.summary.fits === false ? ["bad", "does not fit"] : answer.summary.fits ? ["good", "fits"] : ["quiet", "memory unknown"];
  return element("article", { class: "answer", "data-device": answer.device },
    element("header", {}, element("strong", {}, answer.title), element("span", {}, element("span", { class: `badge ${verdict[0]}` }, verdict[1]), element("button", { type: "button", "aria-label": `Leave ${answer.device} out`, onclick: () => { chosen.delete(answer.device); ask(); } }, "×"))),
    answer.error ? element("p", { class: "quiet" }, answer.error) : element("dl", {}, ...facts(answer).flatMap(([name, value, note]) => [element("dt", {}, name, note ? element("small", {}, `  ${note}`) : null), element("dd", {}, value)])),
    ...(answer.error ? [] : [gauge(answer.fit), fitNote(answer.fit), sources(answer), gains(answer), edgeProfiler(answer)]),
    answer.error ? null : element("p", { class: "quiet" }, [answer.runtime, formats(answer)].filter(Boolean).join(" · ")));
}

// The first answer takes a moment; what is coming, and its place, can be seen meanwhile.
function waiting(name) {
  return element("article", { class: "answer", "data-device": name }, element("header", {}, element("strong", {}, titles[name] ?? name)), element("p", { class: "quiet" }, "Predicting …"));
}

async function ask() {
  const mine = (turn += 1);
  const asked = question();
  const box = byId("answers");
  if (!asked.devices.length) { box.replaceChildren(element("p", { class: "none" }, "Add a device to see an answer.")); return; }
  if (!box.children.length) box.replaceChildren(...asked.devices.map(waiting));
  for (const each of box.children) each.classList.add("stale");
  const [found, problem] = await hub("POST", "/predict", asked).then((answer) => [answer, null], (error) => [null, error.message]);
  if (mine !== turn) return;
  if (problem) { box.replaceChildren(element("p", { class: "callout bad", role: "alert" }, problem)); return; }
  remember(asked);
  box.replaceChildren(...found.answers.map(card));
}

function start() {
  let offered = null;
  for (const field of document.querySelectorAll("[list=models], [list=devices]")) field.addEventListener("focus", () => { offered ??= offerNames({ models: "models", devices: "devices" }).then((names) => { titles = { ...titles, ...names.devices }; }); });
  byId("model").value = data.model;
  for (const [name, values] of Object.entries(SLIDERS)) {
    const slider = byId(`${name}-slide`);
    slider.max = values.length - 1;
    const given = data.asked[name] ?? DEFAULTS[name];
    if (given !== undefined) put(name, given);
    slider.addEventListener("input", () => { byId(name).value = values[Number(slider.value)]; });
    byId(name).addEventListener("input", () => { slider.value = nearest(values, Number(byId(name).value) || 1); });
  }
  for (const name of [...WORDS, "context", ...Object.keys(FLAGS)]) {
    if (!data.asked[name]) continue;
    if (FLAGS[name] === "switch") byId(name).checked = data.asked[name] === "true";
    else byId(name).value = data.asked[name];
  }
  for (const name of ["kv", "activations", "context", ...Object.keys(FLAGS)]) if (data.asked[name]) byId(name).closest("details").open = true;
  const add = async () => {
    const name = byId("device").value.trim();
    await offered;
    if (!Object.hasOwn(titles, name) || byId("device").value.trim() !== name) return;
    chosen.add(name);
    byId("device").value = "";
    fit().then(ask);
  };
  byId("device").addEventListener("input", add);
  byId("device").addEventListener("change", add);
  byId("ask").addEventListener("input", debounced((event) => { if (event.target.id !== "device" && event.target.id !== "model") ask(); }, 30));
  byId("model").addEventListener("change", () => fit().then(ask));
  byId("weights").addEventListener("change", () => fit().then(ask));
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  fit().then(ask);
}

start();
