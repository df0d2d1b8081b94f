// Asking the API from a page: what went wrong stands where the page has a place for it.
import { byId, element } from "./dom.js";

export class HubAway extends Error {}

// A body is JSON, or a piece of a file. Nobody there, and a proxy that finds nobody there, are a hub that is away.
export async function ask(method, path, body, signal) {
  const piece = body instanceof Blob;
  const headers = { "content-type": piece ? "application/octet-stream" : "application/json", accept: "application/json" };
  let response;
  try {
    response = await fetch(`/api/v1${path}`, { method, headers, signal, body: piece ? body : body && JSON.stringify(body) });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new HubAway("The hub does not answer.");
  }
  if (response.status === 502 || response.status === 504) throw new HubAway("The hub does not answer.");
  const found = response.status === 204 ? null : await response.json().catch(() => ({ error: `The hub answered ${response.status}.` }));
  if (!response.ok) throw new Error([found?.error, found?.remedy].filter(Boolean).join(" "));
  return found;
}

// The catalog's names with their titles, for the lists of these ids: asked for when somebody comes to choose, since a
// thousand of each hold a page up.
export async function offerNames(lists) {
  const answer = await fetch("/choices.json").catch(() => null);
  const names = answer?.ok ? await answer.json() : { models: {}, devices: {} };
  for (const [kind, id] of Object.entries(lists)) byId(id).replaceChildren(...Object.entries(names[kind]).map(([name, title]) => element("option", { value: name }, title)));
  return names;
}

// One that waits or runs already is followed; one that has ended is measured again, since somebody pressed the button.
export async function submitted(asked) {
  const row = await ask("POST", "/fleet/jobs", asked);
  return row.ended ? ask("POST", `/fleet/jobs/${row.id}/again`, { device: asked.device, name: asked.name }) : row;
}

export async function attempt(work) {
  const problem = byId("problem");
  problem.hidden = true;
  try {
    await work();
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    problem.scrollIntoView({ block: "nearest" });
  }
}
