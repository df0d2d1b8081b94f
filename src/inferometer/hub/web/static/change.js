// The button that changes the run of this page.
import { byId, dataOf } from "./dom.js";
import { edit } from "./edit.js";

const button = byId("change");
if (button) {
  button.addEventListener("click", () => edit([dataOf("run-row")]));
  button.disabled = false; // until now nobody would have heard the click
}
