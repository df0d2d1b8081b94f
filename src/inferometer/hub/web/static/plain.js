// Pages that only show: times on the reader's clock, and charts.
import { drawCharts } from "./charts.js";
import { writeMoments } from "./dom.js";

drawCharts();
writeMoments();
