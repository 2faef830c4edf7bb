// What a page of pictures and sortable tables does.
"use strict";
// Headings of the trials' table; files keep the names of the columns.
const HEADINGS = {
  cold_us: "time, cold", error: "largest error", family: "kernel family",
  local: "local memory a thread, bytes", registers: "registers a thread",
  shared: "shared memory a block, bytes", tflops: "TFLOP/s", threads: "threads a block",
  time_us: "time, hot",
};
page.draw(page.data("figures"));
for (const [name, table] of Object.entries(page.data("tables"))) {
  for (const column of table.columns) column.title ??= HEADINGS[column.name];
  page.table(document.getElementById(`table-${name}`), table);
}
