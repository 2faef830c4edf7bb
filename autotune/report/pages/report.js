// The report's page: its pictures, the heat map of two chosen parameters, and its tables.
"use strict";
(() => {
  const figures = page.data("figures");
  page.draw(figures, page.data("labels"));

  for (const [name, table] of Object.entries(page.data("tables")))
    page.table(document.getElementById(`table-${name}`), table);

  const heat = document.getElementById("heat");
  if (!heat) return;
  const {columns, rows} = page.data("tables").trials;
  const place = (name) => columns.findIndex((column) => column.name === name);
  const family = heat.dataset.family;
  const timed = rows.filter((row) => row[place("family")] === family && row[place("time_us")]);
  // As `ordered` in parameters.py: numbers ascending, then words.
  const ordered = (values) => [...values].sort((a, b) =>
    (typeof a === "string") - (typeof b === "string") || (a < b ? -1 : a > b ? 1 : 0));
  const plain = (value) => String(value)
    .replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const map = (x, y) => {
    const best = new Map(), key = (a, b) => JSON.stringify([a, b]);
    const xs = new Set(), ys = new Set();
    for (const row of timed) {
      const [a, b] = [row[place(x)], row[place(y)]];
      if (a === null || b === null) continue;
      xs.add(a); ys.add(b);
      best.set(key(a, b), Math.min(best.get(key(a, b)) ?? Infinity, row[place("time_us")]));
    }
    const [across, down] = [ordered(xs), ordered(ys)];
    return {xs: across, ys: down,
      times: down.map((b) => across.map((a) => best.get(key(a, b)) ?? null))};
  };
  const [across, down] = ["heat-x", "heat-y"].map((id) => document.getElementById(id));
  const show = () => {
    const {xs, ys, times} = map(across.value, down.value);
    const template = figures.heat;
    const cells = times.map((row) => row.map((time) => time === null ? "" : time.toPrecision(4)));
    const [trace] = template.data;
    const title = (axis, name) => ({...axis, title: {...axis.title, text: plain(name)}});
    page.plot(heat, {
      data: [{...trace, x: xs.map(plain), y: ys.map(plain), z: times, text: cells,
        hovertemplate: `${plain(across.value)}=%{x}, ${plain(down.value)}=%{y}: ` +
          "%{z:.4g} \u00b5s<extra></extra>"}],
      layout: {...template.layout, xaxis: title(template.layout.xaxis, across.value),
        yaxis: title(template.layout.yaxis, down.value)},
    });
  };
  for (const choice of [across, down]) choice.addEventListener("change", show);
  page.heat = map;
})();
