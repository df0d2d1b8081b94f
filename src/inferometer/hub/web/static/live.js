// Live runs: the hub tells when something changes, and the clock here counts on in between.
import { byId, element } from "./dom.js";
import { follow, toSignIn } from "./follow.js";
import { quantity } from "./format.js";
import { written } from "./metrics.js";

let open = [];

function took(row) {
  return quantity(Math.max(0, Date.now() / 1000 - (row.started || row.created)), "s", 3);
}

function card(row) {
  const { progress, ...metrics } = row.metrics || {};
  return element("article", { class: "answer", "data-run": row.id },
    element("header", {}, element("a", { href: `/runs/${row.id}` }, row.name || row.id), element("span", { class: "badge busy" }, row.status)),
    element("p", { class: "quiet" }, [row.kind, row.project, row.model].filter(Boolean).join(" · ")),
    element("p", { class: "value", "data-clock": row.id }, took(row)),
    progress ? element("progress", { max: 1, value: progress.value, "aria-label": "How far it is" }) : null,
    element("dl", {}, ...Object.entries(metrics).flatMap(([name, metric]) => [element("dt", {}, name), element("dd", {}, written(name, metric.value))])));
}

function show(found) {
  open = found.open;
  byId("open").replaceChildren(...open.map(card));
  byId("nothing").hidden = open.length > 0;
  byId("ended-panel").hidden = found.ended.length === 0;
  byId("ended").replaceChildren(...found.ended.map((row) => element("li", {}, element("a", { href: `/runs/${row.id}` }, row.name || row.id), ` ${row.status}`)));
}

function state(word, tone) {
  byId("state").textContent = word;
  byId("state").className = `badge ${tone}`;
}

const seen = new Set();
follow(() => `/api/v1/live?once=1&seen=${[...seen].slice(-100).join(",")}`, {
  heard(found) {
    for (const row of found.open) seen.add(row.id);
    state("live", "good");
    show(found);
  },
  lost: () => state("the hub does not answer", "bad"),
  signedOut: toSignIn,
});
setInterval(() => { for (const row of open) { const clock = document.querySelector(`[data-clock="${CSS.escape(row.id)}"]`); if (clock) clock.textContent = took(row); } }, 500);
