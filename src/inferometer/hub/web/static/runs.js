// The list of runs: choosing some to compare or change, its columns, and keys to walk it.
import { drawCharts } from "./charts.js";
import { byId, dataOf, writeMoments } from "./dom.js";
import { edit } from "./edit.js";

const MOST = 8;
const KEPT = "run-columns";

function chosen() {
  return [...document.querySelectorAll("#runs input[name=run]:checked")];
}

// Those that whoever looks may change.
function mine() {
  const rows = dataOf("run-rows") ?? {};
  return chosen().filter((box) => box.value in rows);
}

function told() {
  const found = chosen();
  const button = byId("compare");
  if (!button) return;
  button.disabled = found.length < 2 || found.length > MOST;
  button.textContent = found.length > MOST ? `At most ${MOST}` : found.length ? `Compare ${found.length}` : "Compare";
  const change = byId("change");
  if (change) { const own = mine().length; change.hidden = own === 0; change.textContent = `Change ${own}`; }
  for (const row of document.querySelectorAll("#runs tbody tr")) row.classList.toggle("chosen", row.querySelector("input").checked);
}

function compare(event) {
  event.preventDefault();
  window.location.assign(`/compare?${chosen().map((box) => `run=${encodeURIComponent(box.value)}`).join("&")}`);
}

function change() {
  const rows = dataOf("run-rows");
  edit(mine().map((box) => ({ id: box.value, ...rows[box.value] })));
}

function showColumns(keys) {
  for (const cell of document.querySelectorAll("#runs [data-column]")) if (cell.dataset.column !== "run") cell.hidden = !keys.includes(cell.dataset.column);
  for (const box of document.querySelectorAll("#columns input")) box.checked = keys.includes(box.value);
}

function chooseColumns() {
  const keys = [...document.querySelectorAll("#columns input:checked")].map((box) => box.value);
  showColumns(keys);
  try { localStorage.setItem(KEPT, keys.join(",")); } catch { /* private window */ }
  const query = new URLSearchParams(window.location.search);
  query.set("columns", keys.join(","));
  history.replaceState(null, "", `?${query}`);
}

function keptColumns() {
  if (new URLSearchParams(window.location.search).has("columns")) return;
  try {
    const kept = localStorage.getItem(KEPT);
    if (kept !== null) showColumns(kept.split(","));
  } catch { /* private window */ }
}

function walk(event) {
  if (event.target.closest("input, select, textarea, dialog")) return;
  const rows = [...document.querySelectorAll("#runs tbody tr")];
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  if (event.key === "j" || event.key === "k") rows[Math.max(0, Math.min(rows.length - 1, here + (event.key === "j" ? 1 : -1)))]?.querySelector("a[href^='/runs/']").focus();
  if (event.key === "x" && here >= 0) { const box = rows[here].querySelector("input"); box.checked = !box.checked; told(); }
  if (event.key === "/") { event.preventDefault(); document.querySelector("input[type=search]")?.focus(); }
}

byId("runs")?.addEventListener("change", told);
byId("compare")?.addEventListener("click", compare);
byId("change")?.addEventListener("click", change);
byId("columns")?.addEventListener("change", chooseColumns);
document.addEventListener("keydown", walk);
keptColumns();
told();
drawCharts();
writeMoments();
