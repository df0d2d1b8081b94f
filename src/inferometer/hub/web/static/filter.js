// A list that narrows as one types; the words stay in the address, so that it can be shared.
import { byId, debounced } from "./dom.js";
import { count } from "./format.js";

const rows = [...document.querySelectorAll("#list [data-words]")];

function narrow() {
  const words = byId("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    row.hidden = !words.every((word) => row.dataset.words.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  for (const section of document.querySelectorAll("#list section")) section.hidden = !section.querySelector("[data-words]:not([hidden])");
  byId("count").textContent = shown === rows.length ? count(shown) : `${count(shown)} of ${count(rows.length)}`;
  history.replaceState(null, "", words.length ? `?words=${encodeURIComponent(byId("words").value)}` : location.pathname);
}

function sortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    head.tabIndex = 0;
    head.style.cursor = "pointer";
    const sort = () => {
      const falling = head.getAttribute("aria-sort") !== "descending";
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const value = (row) => { const cell = row.cells[place]; return cell.dataset.value !== undefined ? Number(cell.dataset.value) : Number(cell.textContent) || cell.textContent.trim().toLowerCase(); };
      const sorted = [...table.tBodies[0].rows].sort((a, b) => { const one = value(a); const other = value(b); return (one < other ? -1 : one > other ? 1 : 0) * (falling ? -1 : 1); });
      table.tBodies[0].append(...sorted);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
}

byId("words").addEventListener("input", debounced(narrow, 60));
const table = document.querySelector("table.sortable");
if (table) sortable(table);
narrow();
