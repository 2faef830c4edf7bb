// What a page of pictures and sortable tables does.
"use strict";
page.draw(page.data("figures"));
for (const [name, table] of Object.entries(page.data("tables")))
  page.table(document.getElementById(`table-${name}`), table);
