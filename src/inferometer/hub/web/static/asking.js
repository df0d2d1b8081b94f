// Asking the API from a page: what went wrong stands where the page has a place for it.
import { byId } from "./dom.js";

export async function ask(method, path, body) {
  const response = await fetch(`/api/v1${path}`, {
    method, headers: { "content-type": "application/json", accept: "application/json" }, body: body && JSON.stringify(body),
  });
  const found = response.status === 204 ? null : await response.json().catch(() => ({ error: `The hub answered ${response.status}.` }));
  if (!response.ok) throw new Error([found?.error, found?.remedy].filter(Boolean).join(" "));
  return found;
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
