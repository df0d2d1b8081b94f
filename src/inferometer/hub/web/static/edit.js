// Changing runs: their name, tags, note and project, or that they exist at all. The hub decides whether one may.
import { byId, element } from "./dom.js";

const dialog = byId("edit");
const form = dialog?.querySelector("form");
let runs = [];

async function send(method, run, body) {
  const answer = await fetch(`/api/v1/runs/${encodeURIComponent(run)}`, {
    method, headers: { "content-type": "application/json", accept: "application/json" }, body: body && JSON.stringify(body),
  });
  if (answer.ok) return;
  const told = await answer.json().catch(() => ({ error: `The hub answered ${answer.status}.` }));
  throw new Error([told.error, told.remedy].filter(Boolean).join(" "));
}

function words(text) {
  return text.split(/[\s,]+/).filter(Boolean);
}

function changes() {
  const given = new FormData(form);
  if (runs.length > 1) {
    const project = given.get("project").trim();
    return () => ({ add_tags: words(given.get("tags")), ...(project ? { project } : {}) });
  }
  const [run] = runs;
  const tags = words(given.get("tags"));
  const change = { add_tags: tags.filter((tag) => !run.tags.includes(tag)), remove_tags: run.tags.filter((tag) => !tags.includes(tag)), note: given.get("note") };
  if (given.get("name").trim() && given.get("name").trim() !== run.name) change.name = given.get("name").trim();
  if (given.get("project").trim()) change.project = given.get("project").trim();
  return () => change;
}

async function all(work, after) {
  const told = byId("edit-told");
  told.hidden = true;
  for (const button of form.querySelectorAll("button")) button.disabled = true;
  try {
    for (const run of runs) await work(run); // eslint-disable-line no-await-in-loop -- the first refusal ends it
    after();
  } catch (error) {
    told.textContent = error.message;
    told.hidden = false;
  } finally {
    for (const button of form.querySelectorAll("button")) button.disabled = false;
  }
}

export function edit(chosen) {
  runs = chosen;
  const many = chosen.length > 1;
  const [first] = chosen;
  byId("edit-title").textContent = many ? `Change ${chosen.length} runs` : "Change this run";
  for (const name of ["name", "note"]) form.elements[name].closest("label").hidden = many;
  form.elements.name.value = many ? "" : first.name || "";
  form.elements.note.value = many ? "" : first.note || "";
  form.elements.tags.value = many ? "" : first.tags.join(" ");
  form.elements.tags.placeholder = many ? "tags to add" : "one word each";
  form.elements.project.value = many ? "" : first.project;
  form.elements.project.placeholder = many ? "leave as it is" : "";
  byId("edit-told").hidden = true;
  byId("edit-sure").hidden = true;
  dialog.showModal();
}

if (dialog) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const change = changes();
    all((run) => send("PATCH", run.id, change(run)), () => window.location.reload());
  });
  byId("edit-cancel").addEventListener("click", () => dialog.close());
  byId("edit-delete").addEventListener("click", () => {
    const sure = byId("edit-sure");
    if (sure.hidden) {
      sure.hidden = false;
      sure.replaceChildren(element("strong", {}, runs.length > 1 ? `Delete ${runs.length} runs for good?` : "Delete this run for good?"), " Its profile and files go too. Press Delete once more.");
      return;
    }
    all((run) => send("DELETE", run.id), () => (document.querySelector("#runs") ? window.location.reload() : window.location.assign("/")));
  });
}
