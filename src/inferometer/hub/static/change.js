// The button that changes the run of this page.
import { byId, dataOf } from "./dom.js";
import { edit } from "./edit.js";

byId("change")?.addEventListener("click", () => edit([dataOf("run-row")]));
