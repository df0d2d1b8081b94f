// The pages of people: tokens, sessions, members, links. The hub decides whether one may.
import { ask, attempt } from "./asking.js";
import { byId, writeMoments } from "./dom.js";

function onSubmit(id, work) {
  byId(id)?.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => work(new FormData(event.target)));
  });
}

onSubmit("new-token", async (given) => {
  const scope = given.get("scope");
  const made = await ask("POST", "/tokens", {
    name: given.get("name"), scopes: [scope], days: Number(given.get("days")), project: given.get("project") || null, user: given.get("user") || null,
  });
  byId("secret").textContent = made.text;
  byId("told").hidden = false;
  byId("copy").focus();
});
byId("copy")?.addEventListener("click", () => navigator.clipboard?.writeText(byId("secret").textContent));

const project = byId("project")?.dataset.project;
const place = `/projects/${encodeURIComponent(project ?? "")}`;
onSubmit("new-member", async (given) => {
  await ask("PUT", `${place}/members/${encodeURIComponent(given.get("user").trim())}`, { role: given.get("role") });
  window.location.reload();
});
onSubmit("rules", async (given) => {
  await ask("PATCH", place, { open: given.get("open") === "yes", writer_priority: Number(given.get("writer_priority")), owner_priority: Number(given.get("owner_priority")) });
  window.location.reload();
});
onSubmit("retention", async (given) => {
  const seconds = (rule) => given.get(rule) === "" ? null : 86400 * Number(given.get(rule));
  const deleted = ["runs", "artifacts", "jobs"].filter((rule) => given.get(rule) !== "").map((rule) => `${rule} after ${given.get(rule)} days`);
  if (deleted.length && !window.confirm(`Delete ${deleted.join(", ")}, for good?`)) return;
  await ask("PUT", `${place}/retention`, {
    runs_s: seconds("runs"), artifacts_s: seconds("artifacts"), jobs_s: seconds("jobs"),
    keep_tags: given.get("keep_tags").split(",").map((tag) => tag.trim()).filter(Boolean),
  });
  window.location.reload();
});
for (const choice of document.querySelectorAll("select[data-role-of]")) {
  choice.addEventListener("change", () => attempt(() => ask("PUT", `${place}/members/${encodeURIComponent(choice.dataset.roleOf)}`, { role: choice.value })));
}
for (const button of document.querySelectorAll("button[data-delete]")) {
  button.addEventListener("click", () => {
    if (button.dataset.sure && !window.confirm(button.dataset.sure)) return;
    attempt(async () => {
      await ask("DELETE", button.dataset.delete);
      window.location.reload();
    });
  });
}
writeMoments();
