// The button that makes a link to this page for somebody without an account.
import { byId } from "./dom.js";

const button = byId("share");
button?.addEventListener("click", async () => {
  const told = byId("shared");
  button.disabled = true;
  try {
    const response = await fetch("/api/v1/links", {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ runs: button.dataset.runs.split(" ") }),
    });
    const found = await response.json();
    if (!response.ok) throw new Error([found.error, found.remedy].filter(Boolean).join(" "));
    const box = told.querySelector("input");
    told.querySelector("span").textContent = `Whoever has this link sees this page, for ${found.days} days:`;
    box.value = found.link;
    box.hidden = false;
    told.hidden = false;
    box.focus();
    box.select();
  } catch (error) {
    told.querySelector("span").textContent = error.message;
    told.querySelector("input").hidden = true;
    told.hidden = false;
  } finally {
    button.disabled = false;
  }
});
