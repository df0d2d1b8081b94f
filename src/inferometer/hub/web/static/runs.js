// The list of runs: choosing some to compare or change, its columns, and keys to walk it.
import { drawCharts } from "./charts.js";
import { byId, element, keep, kept, writeMoments } from "./dom.js";
import { edit } from "./edit.js";

const MOST = 8;
const KEPT = "run-columns";

function chosen() {
  return [...document.querySelectorAll("#runs input[name=run]:checked")];
}

// Those that whoever looks may change.
function mine() {
  return chosen().map((box) => box.closest("tr")).filter((row) => row.dataset.change);
}

function told() {
  const found = chosen();
  const button = byId("compare");
  if (!button) return;
  button.disabled = found.length < 2 || found.length > MOST;
  button.textContent = found.length > MOST ? `At most ${MOST}` : found.length ? `Compare ${found.length}` : "Compare";
  const change = byId("change");
  if (change) { const own = mine().length; change.hidden = own === 0; change.textContent = `Change ${own}`; }
  for (const row of document.querySelectorAll("#runs tbody tr[data-run]")) row.classList.toggle("chosen", row.querySelector("input").checked);
}

function compare(event) {
  event.preventDefault();
  window.location.assign(`/compare?${chosen().map((box) => `run=${encodeURIComponent(box.value)}`).join("&")}`);
}

function change() {
  edit(mine().map((row) => ({ id: row.dataset.run, ...JSON.parse(row.dataset.change) })));
}

function showColumns(keys) {
  for (const cell of document.querySelectorAll("#runs [data-column]")) if (cell.dataset.column !== "run") cell.hidden = !keys.includes(cell.dataset.column);
  for (const box of document.querySelectorAll("#columns input")) box.checked = keys.includes(box.value);
}

function chooseColumns() {
  const keys = [...document.querySelectorAll("#columns input:checked")].map((box) => box.value);
  showColumns(keys);
  keep(KEPT, keys);
  const query = new URLSearchParams(window.location.search);
  query.set("columns", keys.join(","));
  history.replaceState(null, "", `?${query}`);
}

function keptColumns() {
  if (new URLSearchParams(window.location.search).has("columns")) return;
  const keys = kept(KEPT);
  if (Array.isArray(keys)) showColumns(keys);
}

function walk(event) {
  if (event.target.closest("input, select, textarea, dialog")) return;
  const rows = [...document.querySelectorAll("#runs tbody tr[data-run]")];
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  if (event.key === "j" || event.key === "k") rows[Math.max(0, Math.min(rows.length - 1, here + (event.key === "j" ? 1 : -1)))]?.querySelector("a[href^='/runs/']").focus();
  if (event.key === "x" && here >= 0) { const box = rows[here].querySelector("input"); box.checked = !box.checked; told(); }
  if (event.key === "/") { event.preventDefault(); document.querySelector("input[type=search]")?.focus(); }
}

// Views: filters, order and columns under a name. They are this browser's; the address is what one shares.
const VIEWS = "run-views";
const views = () => kept(VIEWS) ?? {};

function keepViews(named) {
  keep(VIEWS, named);
  showViews();
}

function showViews() {
  const here = `${window.location.pathname}${window.location.search}`;
  const drop = (name) => { const { [name]: _, ...rest } = views(); keepViews(rest); };
  const lines = Object.entries(views()).map(([name, address]) => element("li", { class: "view" },
    element("a", { href: address, "aria-current": address === here ? "page" : null }, name),
    element("button", { type: "button", class: "link", "aria-label": `Forget ${name}`, onclick: () => drop(name) }, "×")));
  const box = element("input", { maxlength: 60, placeholder: "Name of this view", "aria-label": "Name of this view" });
  const save = () => { if (box.value.trim()) keepViews({ ...views(), [box.value.trim()]: here }); };
  box.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); save(); } }); // and nothing is searched
  byId("views").querySelector("ul").replaceChildren(...lines, element("li", { class: "view" }, box, element("button", { type: "button", onclick: save }, "Save")));
}

// A list of any length: pages come as one scrolls. Those far away leave only their height behind, and the rows of those
// left long ago are asked for again: a hundred thousand of them would fill the memory of a browser.
const NEAR = "1500px";
const HELD = 20;
const held = new Set();
const far = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) {
    target.near = isIntersecting;
    if (isIntersecting && target.spacer) comeBack(target);
    else if (!isIntersecting && !target.spacer && !target.querySelector("input:checked, :focus")) leave(target);
  }
}, { rootMargin: NEAR });

function leave(body) {
  body.spacer = element("tr", { class: "spacer", "aria-hidden": true }, element("td", { colspan: 99 }));
  body.spacer.firstChild.style.height = `${body.offsetHeight}px`;
  body.kept = [...body.children];
  body.replaceChildren(body.spacer);
  held.add(body);
  for (const oldest of held) { if (held.size <= HELD) break; held.delete(oldest); oldest.kept = null; }
}

async function comeBack(body) {
  const rows = body.kept ?? [...((await pageAt(body.from))?.querySelector("#runs tbody")?.children ?? [])];
  if (!rows.length || !body.near || !body.spacer) return; // nobody looks any more, or the hub is away: the next time
  held.delete(body);
  body.spacer = body.kept = null;
  body.replaceChildren(...rows);
  dress(body);
}

async function pageAt(address) {
  const answer = await fetch(address).catch(() => null);
  return answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
}

// Rows that have just come, as those that are there: with the same columns, and times in words.
function dress(body) {
  const hidden = [...document.querySelectorAll("#runs thead [data-column]")].filter((cell) => cell.hidden).map((cell) => cell.dataset.column);
  for (const cell of body.querySelectorAll("[data-column]")) cell.hidden = hidden.includes(cell.dataset.column);
  writeMoments(body);
  told();
}

async function next(link) {
  const from = link.href;
  const page = await pageAt(from);
  const rows = page && document.adoptNode(page.querySelector("#runs tbody"));
  if (!rows) return; // the link is still there to press
  rows.from = from;
  byId("runs").append(rows);
  const after = page.querySelector("#more a");
  if (after) link.href = after.href; else byId("more").remove();
  dress(rows);
  far.observe(rows);
}

function scrollOn() {
  const link = document.querySelector("#more a");
  if (!link) return;
  const first = document.querySelector("#runs tbody");
  first.from = window.location.href;
  far.observe(first);
  let busy = false;
  const end = new IntersectionObserver(async (seen) => {
    if (!seen.at(-1).isIntersecting || busy) return; // of several at once the last is how it is now
    busy = true;
    await next(link);
    busy = false;
    end.unobserve(byId("more") ?? link);
    if (byId("more")) end.observe(byId("more")); // once more, where a page did not fill the screen
  }, { rootMargin: NEAR });
  end.observe(byId("more"));
}

byId("choose-all")?.addEventListener("change", (event) => { for (const box of document.querySelectorAll("#runs input[name=run]")) box.checked = event.target.checked; });
byId("runs")?.addEventListener("change", told);
byId("compare")?.addEventListener("click", compare);
byId("change")?.addEventListener("click", change);
byId("columns")?.addEventListener("change", chooseColumns);
document.addEventListener("keydown", walk);
keptColumns();
told();
if (byId("views")) showViews();
scrollOn();
drawCharts();
writeMoments();
