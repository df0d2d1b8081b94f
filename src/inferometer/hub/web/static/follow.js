// What is going on, asked again and again while somebody looks at the page. No connection stays open: a browser keeps six
// to a hub, so that a stream in each of six tabs would leave none for the seventh.
const EVERY_MS = 700;

export function follow(address, { heard, lost, signedOut }) {
  let seen = null;
  let stopped = false;
  let waiting = 0;

  async function ask() {
    try {
      const answer = await fetch(address(), { cache: "no-cache", headers: { accept: "application/json" } });
      if (answer.status === 401 || answer.status === 403) { stopped = true; signedOut(); return; }
      if (!answer.ok) { lost(answer.status); return; }
      const tag = answer.headers.get("etag");
      const value = await answer.json();
      if (stopped) return;
      heard(value, tag !== seen);
      seen = tag;
    } catch {
      lost(0);
    }
  }

  async function round() {
    clearTimeout(waiting);
    if (stopped || document.hidden) return;
    await ask();
    clearTimeout(waiting);
    if (!stopped) waiting = setTimeout(round, EVERY_MS);
  }

  document.addEventListener("visibilitychange", round);
  round();
  return () => { stopped = true; clearTimeout(waiting); };
}

export function toSignIn() {
  const here = window.location.pathname + window.location.search;
  window.location.assign(`/sign-in?ended=1&to=${encodeURIComponent(here)}`);
}
