// The page of a new run: a model goes to the hub, is read there at once, and the job that was shown is submitted.
import { ask, attempt, submitted } from "./asking.js";
import { byId, dataOf, debounced, element, keep, kept } from "./dom.js";
import { count, quantity } from "./format.js";
import { ownMachine } from "./own_machine.js";
import { hashed, send, sortedOut, unzipped } from "./sending.js";

const data = dataOf("data");
const REMEMBERED = "inferometer.upload"; // an upload that broke off, so that whoever comes back knows
let model = null; // { model, entry, files } as the hub takes it
let preview = null;
let sending = null; // what ends the upload under way
let turn = 0;
let reading = false;
let foretoldOn = null;
let stale = false; // something was changed that the preview does not know of yet

const chosen = () => [...document.querySelectorAll("#devices input:checked")].map((box) => box.value);
const format = () => byId("formats").querySelector("input:checked")?.value || null;
const rowsShown = () => (preview ? preview.devices : data.devices);
const bytes = (value) => quantity(value, "B", 3);

function refuse(error) {
  byId("problem").textContent = error.message;
  byId("problem").hidden = false;
  byId("sending").hidden = true;
}

// The model: chosen, sorted out by the hub, hashed and sent

async function take(files) {
  sending?.abort();
  const mine = sending = new AbortController();
  model = preview = null;
  byId("problem").hidden = byId("left").hidden = byId("card").hidden = true;
  byId("name").value = "";
  settle();
  try {
    const zip = files.length === 1 && files[0].path.toLowerCase().endsWith(".zip");
    const sorted = await sortedOut(zip ? await unzipped(files[0].blob) : files);
    const sent = await sendAll(sorted, mine.signal);
    if (mine.signal.aborted) return;
    model = { model: sorted.name, entry: sorted.entry, files: sent };
    await look();
  } catch (error) {
    if (!mine.signal.aborted) refuse(error);
  } finally {
    if (!mine.signal.aborted) settle();
  }
}

async function sendAll({ name, files }, signal) {
  const whole = files.reduce((total, { blob }) => total + blob.size, 0) || 1;
  const told = byId("told");
  const shown = (done, words) => {
    byId("sent").value = done / whole;
    told.textContent = `${name}: ${words} ${bytes(Math.min(done, whole))} of ${bytes(whole)}`;
  };
  byId("sending").hidden = false;
  let before = 0;
  const listed = [];
  for (const { path, blob } of files) { // one after the other: a browser that reads many at once reads none quickly
    listed.push({ path, blob, sha256: await hashed(blob, (read) => shown(before + read, "reading"), signal) }); // eslint-disable-line no-await-in-loop -- as said
    before += blob.size;
  }
  before = 0;
  for (const file of listed) {
    const progress = (at) => {
      shown(before + at, "sent");
      keep(REMEMBERED, { name, share: (before + at) / whole });
    };
    await send(file, progress, (words) => { told.textContent = words; }, signal); // eslint-disable-line no-await-in-loop -- as said
    before += file.blob.size;
  }
  keep(REMEMBERED, null);
  byId("sending").hidden = true;
  return listed.map(({ path, blob, sha256 }) => ({ path, sha256, size_bytes: blob.size }));
}

// From an address that the hub's owner allows: the hub fetches it, and this page sends nothing
async function fetched(url) {
  const mine = sending = new AbortController();
  byId("problem").hidden = true;
  byId("reading").textContent = "The hub fetches the model …";
  settle();
  try {
    const found = await ask("POST", "/fleet/models/fetched", { url }, mine.signal);
    if (mine.signal.aborted) return;
    model = found;
    await look();
  } catch (error) {
    if (!mine.signal.aborted) refuse(error);
  } finally {
    byId("reading").textContent = "";
    settle();
  }
}

// What somebody dropped: files, and whatever lies in folders
async function dropped(items) {
  const found = [];
  const walk = async (entry) => {
    if (entry.isFile) {
      const blob = await new Promise((done, failed) => { entry.file(done, failed); });
      found.push({ path: entry.fullPath.replace(/^\//, ""), blob });
      return;
    }
    const reader = entry.createReader();
    for (let batch = [null]; batch.length;) { // a folder is told in parts, until one is empty
      batch = await new Promise((done, failed) => { reader.readEntries(done, failed); }); // eslint-disable-line no-await-in-loop -- as said
      for (const each of batch) await walk(each); // eslint-disable-line no-await-in-loop -- in order
    }
  };
  for (const entry of [...items].map((item) => item.webkitGetAsEntry()).filter(Boolean)) await walk(entry); // eslint-disable-line no-await-in-loop -- in order
  return found;
}

// What the hub says of it

function sizesGiven() {
  const given = {};
  for (const field of byId("sizes").querySelectorAll("input")) if (field.value) given[field.dataset.size] = Number(field.value);
  return given;
}

function wish() {
  const { generate, ...sizes } = sizesGiven();
  const text = (id) => byId(id).value.trim() || null;
  return { ...model, sizes, generate: generate ?? null, runtime: text("runtime"), precision: text("precision"), project: text("project") || "default", quantise: format(), device: chosen()[0] || null };
}

async function look() {
  const mine = (turn += 1);
  [reading, stale] = [true, false];
  byId("reading").textContent = "Reading the model and predicting …";
  settle();
  try {
    const asked = wish();
    foretoldOn = asked.device;
    const found = await ask("POST", "/fleet/preview", asked);
    if (mine !== turn) return;
    preview = found;
    byId("problem").hidden = true;
    showModel();
    showFormats();
  } catch (error) {
    if (mine !== turn) return;
    preview = null;
    refuse(error);
  }
  reading = false;
  byId("reading").textContent = "";
  showDevices();
  settle();
}

function showModel() {
  const { model: read, job } = preview;
  const facts = [
    ["is", [read.format ? read.format.toUpperCase() : "of the catalog", read.architecture, read.precision].filter(Boolean).join(" · ")],
    ["parameters", count(read.parameters)],
    ["size", job.model.files?.length ? bytes(job.model.files.reduce((total, file) => total + file.size_bytes, 0)) : null],
    ["inputs", read.inputs.map((each) => `${each.name} ${each.dtype || ""}[${each.shape.join(", ")}]`).join("; ") || "none"],
    ["opened by", read.engines ? read.engines.join(", ") || "no engine that is known" : "any engine: it is made with random weights in the exact shapes"],
  ];
  byId("card").replaceChildren(element("h3", { class: "model-name" }, job.model.name), element("dl", {}, ...facts.filter(([, value]) => value).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])));
  byId("card").hidden = false;
  const given = sizesGiven();
  const open = [...read.open, ...(read.writes ? [{ name: "generate", text: "(tokens to write)", value: 128 }] : [])];
  byId("sizes").hidden = !open.length;
  byId("sizes").replaceChildren(...open.map(({ name, text, value }) => element("label", { class: "field" }, name === "query" ? "prompt" : name, element("small", {}, text.replace(`${name} `, "")),
    element("input", { type: "number", min: 1, step: 1, "data-size": name, value: given[name] ?? null, placeholder: value ?? "has to be given", required: value === null }))));
  byId("python").textContent = preview.python;
}

// What quantising it first would bring on the first device that is chosen
function showFormats() {
  const ticked = format();
  const { prepared } = preview;
  const rows = prepared?.formats || [];
  byId("formats").hidden = !rows.length;
  const choice = (value, ...words) => element("label", { class: "check" }, element("input", { type: "radio", name: "quantise", value, checked: value === (ticked || "") }), element("span", {}, ...words));
  const told = ({ quantise, gain, low, high, verdict, weight_bytes: weights, reason }) => (gain
    ? [element("strong", {}, quantise), ` ${verdict}: predicted ${gain.toFixed(2)} × (${low.toFixed(2)} to ${high.toFixed(2)}), weights ${bytes(weights)}`]
    : [element("strong", {}, quantise), ` ${reason || "not predicted"}`]);
  byId("formats").replaceChildren(element("legend", {}, `Prepare it for ${prepared?.runtime || "an engine"} first?`), choice("", "no, as it is"), ...rows.map((row) => choice(row.quantise, ...told(row))));
}

// Where, and with what

function predictedCell(row) {
  const { predicted } = row;
  if (!predicted) return element("td", { class: "number quiet", "data-label": "Predicted" }, "–");
  if (predicted.error) return element("td", { class: "wrap quiet", "data-label": "Predicted" }, [predicted.error, predicted.remedy].filter(Boolean).join(" "));
  const time = predicted.tpot_s ? `${quantity(predicted.tpot_s, "s", 3)} a token` : quantity(predicted.step_s, "s", 3);
  return element("td", { class: "number strong", "data-label": "Predicted" }, time, predicted.fits === false ? element("span", { class: "badge bad" }, "does not fit") : null);
}

function deviceRow(row, ticked) {
  const needed = format() && preview?.prepared?.runtime;
  const able = row.ready && (!preview || row.own || (needed ? row.engines.includes(needed) : row.engines.length > 0));
  const box = element("input", { type: "checkbox", value: row.name, "data-own": row.own, "aria-label": row.name, checked: able && ticked.includes(row.name), disabled: !able });
  const ahead = row.ahead ? `${row.ahead} job${row.ahead === 1 ? "" : "s"} before yours` : "";
  const beside = row.standing === "away" ? "waits until it is back" : row.ready ? ahead : row.reason;
  const state = element("td", { "data-label": "State" }, element("span", { class: `badge ${row.tone}` }, row.standing), beside ? element("span", { class: "quiet" }, ` ${beside}`) : null);
  const engines = !preview || row.own ? row.engines.join(", ") : row.predicted?.runtime && row.engines.includes(row.predicted.runtime) ? row.predicted.runtime : row.engines[0] || "no engine there opens it";
  return element("tr", {}, element("td", { class: "tick" }, box), element("td", { class: "name", "data-label": "Device" }, element("strong", {}, row.name)), state,
    element("td", { "data-label": "Trust" }, row.own ? "–" : element("span", { class: "badge quiet", title: row.why }, row.trust)), predictedCell(row), element("td", { class: "cut", "data-label": "With" }, engines));
}

function showDevices() {
  const rows = [...rowsShown()];
  if (data.own && !rows.some((row) => row.name === data.own && row.standing !== "away")) rows.unshift({ name: data.own, own: true, ready: true, standing: "this machine", tone: "plain", engines: ["an agent starts here when you measure"], ahead: 0 });
  const usable = rows.filter((row) => row.ready && row.standing !== "away" && (!preview || row.own || row.engines.length));
  const before = chosen();
  const ticked = before.length ? before : usable.length ? [(usable.find((row) => !row.own) || usable[0]).name] : [];
  byId("devices").replaceChildren(...(rows.length ? rows.map((row) => deviceRow(row, ticked)) : [element("tr", {}, element("td", { colspan: 6, class: "none wrap" }, "No device takes jobs of this project yet. Start one: inferometer hub agent --hub ", window.location.origin))]));
  showRuntimes();
}

function showRuntimes() {
  const names = new Set(rowsShown().filter((row) => chosen().includes(row.name)).flatMap((row) => row.engines));
  const select = (id, values, first) => {
    const before = byId(id).value;
    byId(id).replaceChildren(element("option", { value: "" }, first), ...[...values].map((name) => element("option", { selected: name === before }, name)));
  };
  select("runtime", [...names].sort(), "what each device takes first");
  const precisions = (preview && preview.precisions[byId("runtime").value]) || [];
  select("precision", precisions, byId("runtime").value && !precisions.length ? "as the file says: it has no choice" : "as the file says");
  byId("precision").disabled = !precisions.length;
}

// Whether it can be measured now, and if not, why

function obstacle() {
  if (byId("new").dataset.writes !== "yes") return "You may read here, and not measure.";
  if (!model) return byId("sending").hidden ? "Choose a model first." : "The model is being sent.";
  if (stale || reading) return "The model is being read.";
  if (!preview) return "This model cannot be measured as it stands.";
  const open = [...byId("sizes").querySelectorAll("input")].find((field) => field.required && !field.value);
  if (open) return `Say how large this is: ${open.parentElement.firstChild.textContent}.`;
  if (!chosen().length) return "Choose a device.";
  return null;
}

function settle() {
  const reason = obstacle();
  const many = chosen().length;
  byId("measure").disabled = reason !== null;
  byId("measure").textContent = format() ? "Prepare and measure" : "Measure";
  byId("why").textContent = reason ?? (many > 1 ? `On ${many} devices, side by side.` : `On ${chosen()[0]}.`);
  const row = preview && preview.devices.find((each) => chosen().includes(each.name));
  byId("same").hidden = !preview;
  byId("command").textContent = row ? row.command : preview ? preview.python : "";
}

async function measure() {
  const { job } = preview;
  const { project } = wish();
  const devices = chosen();
  byId("measure").disabled = true;
  try {
    if (document.querySelector("#devices input:checked[data-own]")) await ownMachine(byId("why"));
    const rows = [];
    const name = byId("run-name").value.trim() || (format() ? `${job.model.name} as ${format()}` : null);
    for (const device of devices) rows.push(await submitted({ job, device, project, name })); // eslint-disable-line no-await-in-loop -- the first refusal ends it
    const [first, ...others] = rows.map((row) => row.id);
    window.location.assign(`/fleet/jobs/${first}${others.length ? `?${others.map((id) => `with=${id}`).join("&")}` : ""}`);
  } finally {
    settle();
  }
}

function start() {
  const drop = byId("drop");
  const input = byId("file");
  input.addEventListener("change", () => {
    const files = [...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, blob: file }));
    if (files.length) take(files);
  });
  byId("folder").addEventListener("click", () => {
    input.webkitdirectory = true; // the same input: what it takes is a folder for once
    input.click();
    input.webkitdirectory = false;
  });
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => { event.preventDefault(); dropped(event.dataTransfer.items).then((files) => (files.length ? take(files) : null), refuse); });
  const named = () => {
    const name = byId("name").value.trim();
    sending?.abort();
    byId("sending").hidden = byId("left").hidden = true;
    model = preview = null;
    byId("card").hidden = true;
    if (/^https?:/.test(name)) { fetched(name); return; }
    model = name ? { model: name } : null;
    if (model) look(); else settle();
  };
  byId("name").addEventListener("change", named);
  const soon = debounced(() => { if (model) look(); }, 300);
  const again = () => { stale = Boolean(model); settle(); soon(); };
  for (const id of ["runtime", "precision", "project"]) byId(id).addEventListener("change", () => { if (id === "runtime") showRuntimes(); again(); });
  for (const id of ["sizes", "formats"]) byId(id).addEventListener("change", again);
  byId("sizes").addEventListener("input", settle);
  byId("devices").addEventListener("change", () => {
    showRuntimes();
    if (chosen().length && chosen()[0] !== foretoldOn) again(); else settle(); // what preparing brings is told of the first
  });
  byId("new").addEventListener("submit", (event) => { event.preventDefault(); attempt(measure); });
  const left = kept(REMEMBERED);
  if (left) {
    byId("left").textContent = `${left.name} was sent as far as ${Math.floor(100 * left.share)} %. Choose it again, and the rest is sent.`;
    byId("left").hidden = false;
  }
  showDevices();
  if (byId("name").value) named(); else settle();
}

start();
