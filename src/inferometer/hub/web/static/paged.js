// A long list that the hub narrows as one types; the words stay in the address, so that it can be shared.
import { byId, debounced } from "./dom.js";

let turn = 0;

async function narrow() {
  const mine = (turn += 1);
  const words = new URLSearchParams([...new FormData(byId("find"))].filter(([, value]) => value));
  const address = words.size ? `?${words}` : location.pathname;
  const answer = await fetch(address).catch(() => null);
  if (!answer?.ok || mine !== turn) return;
  const found = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (mine !== turn) return;
  byId("results").replaceWith(document.adoptNode(found.getElementById("results")));
  history.replaceState(null, "", address);
}

byId("words").addEventListener("input", debounced(narrow, 120));
byId("find").addEventListener("submit", (event) => { event.preventDefault(); narrow(); });
