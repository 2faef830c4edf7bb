// What a page of pictures and sortable tables does; an overview ranks its problems.
"use strict";
// Headings of the trials' table; files keep the names of the columns.
const HEADINGS = {
  cold_us: "time, cold", error: "largest error", family: "kernel family",
  local: "local bytes a thread", registers: "registers a thread",
  shared: "shared bytes a block", tflops: "TFLOP/s", threads: "threads a block",
  time_us: "time, hot",
};

// The rankings of an overview: its problems by precision and device, by speed over the vendor's
// library, or by TFLOP/s where that was not timed.
const rankings = ({columns, rows, precisions}) => {
  const problems = rows.map(
    (row) => Object.fromEntries(row.map((value, index) => [columns[index].name, value])));
  const devices = [...new Set(problems.map((problem) => problem.device))];
  return precisions.flatMap((precision) => devices.map((device) => {
    const own = problems.filter((one) => one.precision === precision && one.device === device);
    const vendor = own.find((problem) => problem.over_hot !== null)?.vendor;
    const key = vendor ? "over_hot" : "tflops";
    const ranked = own.filter((problem) => problem[key] !== null)
      .sort((first, second) => second[key] - first[key]);
    return {
      name: devices.length === 1 ? precision : `${precision} on ${device}`,
      measure: vendor ? `speed over ${vendor}` : "TFLOP/s",
      series: vendor ? {hot: "over_hot", cold: "over_cold"} : {hot: key},
      shown: vendor ? page.ratio : (value) => value.toPrecision(4),
      others: own.length - ranked.length, key, ranked, vendor,
    };
  })).filter(({ranked}) => ranked.length);
};

// Colours as in figures.py. Series also differ in symbol and hatching.
const SERIES = {
  hot: {color: "#3b82c4", symbol: "circle", hatch: ""},
  cold: {color: "#d98324", symbol: "diamond-open", hatch: "/"},
};
const escaped = (text) => page.made("span", {textContent: text}).innerHTML;

const figureOf = (ranking, data, layout) => ({data, layout: {
  margin: {l: 62, r: 14, t: 70, b: 48}, font: {size: 12}, hovermode: "closest",
  showlegend: Boolean(ranking.vendor),
  legend: {orientation: "h", x: 0, y: 1, xanchor: "left", yanchor: "top", yref: "container"},
  // At 1 both are as fast.
  shapes: ranking.vendor ? [{type: "line", xref: "x", yref: "paper", x0: 1, x1: 1, y0: 0, y1: 1,
    line: {color: "#7a8794", dash: "dash"}}] : [],
  ...layout,
}});

// The speeds of some problems of a ranking, the fastest on top.
const rankingFigure = (ranking, problems) => {
  const shown = [...problems].reverse(), labels = shown.map(({title}) => escaped(title));
  const data = Object.entries(ranking.series).map(([name, key]) => ({
    type: "scatter", mode: "markers", name, y: labels, x: shown.map((problem) => problem[key]),
    text: shown.map((problem) => problem[key] === null ? "" : ranking.shown(problem[key])),
    hovertemplate: `%{y}: %{text}, ${name}<extra></extra>`,
    marker: {size: 9, color: SERIES[name].color, symbol: SERIES[name].symbol},
  }));
  return figureOf(ranking, data, {
    height: 90 + 18 * shown.length, margin: {l: 62, r: 14, t: 70, b: 10},
    xaxis: {title: {text: ranking.measure, standoff: 8}, side: "top", automargin: true,
      type: ranking.vendor ? "log" : "linear"},
    yaxis: {type: "category", categoryarray: labels, dtick: 1, range: [-1, labels.length],
      tickfont: {size: 10}, automargin: true},
  });
};

// The number of problems by ratio, in steps of 5 % up to 2, or by TFLOP/s, in 20 steps.
const histogram = (ranking) => {
  const last = ranking.vendor ? 40 : 20;
  const step = ranking.vendor ? 0.05 : ranking.ranked[0].tflops / last;
  const range = (place) => place === last && ranking.vendor ? "2x and more"
    : `${ranking.shown(place * step)} to ${ranking.shown((place + 1) * step)}`;
  const data = Object.entries(ranking.series).map(([name, key]) => {
    const steps = new Map();
    for (const {[key]: value} of ranking.ranked) {
      const place = Math.min(Math.floor(value / step + 1e-9), last);
      if (value !== null) steps.set(place, (steps.get(place) ?? 0) + 1);
    }
    const places = [...steps.keys()];
    return {
      type: "bar", name, x: places.map((place) => (place + 0.5) * step), y: [...steps.values()],
      customdata: places.map(range),
      hovertemplate: `%{customdata}, ${name}: %{y} problems<extra></extra>`,
      marker: {color: SERIES[name].color, pattern: {shape: SERIES[name].hatch}},
    };
  });
  return figureOf(ranking, data, {
    xaxis: {title: {text: ranking.measure, standoff: 8}, automargin: true},
    yaxis: {title: {text: "problems", standoff: 8}, automargin: true},
  });
};

const counted = (number) => number === 1 ? "1 problem" : `${page.count(number)} problems`;

// A table of the rankings' ends and means.
const summary = (all) => {
  const caption = "Speeds by precision, hot";
  const headings = ["precision", "ranked by", "problems", "at least as fast as cuBLAS", "lowest",
    "geometric mean", "highest"];
  const cell = (tag) => (text, index) => page.made(tag, {
    textContent: text, className: index < 2 ? "word" : "number", ...(tag === "th" && {scope: "col"})});
  const rows = all.map(({name, measure, key, ranked, shown, vendor}) => {
    const values = ranked.map((problem) => problem[key]);
    const mean = Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
    const fast = values.filter((value) => value >= 1).length / values.length;
    return [name, measure, page.count(values.length), vendor ? page.percent(fast, 0) : "\u2013",
      ...[values.at(-1), mean, values[0]].map(shown)];
  });
  return page.made("div", {className: "scroll", tabIndex: 0, role: "region",
    ariaLabel: caption}, page.made("table", {}, page.made("caption", {textContent: caption}),
    page.made("thead", {}, page.made("tr", {}, ...headings.map(cell("th")))),
    page.made("tbody", {}, ...rows.map((row) => page.made("tr", {}, ...row.map(cell("td")))))));
};

const END = 25;  // problems at either end of a ranking; up to twice as many are one picture

// Fills the place with the rankings, folded up but for the first of many; gives their figures.
const rank = (place, problems) => {
  const figures = {}, all = rankings(problems);
  const picture = (name, figure, caption, size) => {
    figures[name] = figure;
    const plot = page.made("div", {className: `plot ${size}`, id: name, role: "group",
      ariaLabel: `${caption} The table of all problems has the numbers.`});
    plot.dataset.figure = name;
    return page.made("figure", {}, plot, page.made("figcaption", {textContent: caption}));
  };
  const parts = all.map((ranking, number) => {
    const {name, measure, ranked, others, vendor} = ranking;
    const many = ranked.length > 2 * END;
    const ends = many ? {[`Fastest ${END}`]: ranked.slice(0, END), [`Slowest ${END}`]: ranked.slice(-END)}
      : {All: ranked};
    const pictures = Object.entries(ends).map(([which, some], index) => picture(
      `ranking-${number}-${index}`, rankingFigure(ranking, some), `${which}, by ${measure}, hot.`,
      "free"));
    if (many) pictures.unshift(picture(`histogram-${number}`, histogram(ranking),
      `Problems by ${measure}${vendor ? "; the last bar has those of 2x and more" : ""}.`, "short"));
    const rest = others ? `; ${page.count(others)} more are in the table alone` : "";
    return page.made("details", {open: number === 0 || problems.rows.length <= 4 * END},
      page.made("summary", {}, page.made("h3", {textContent: `${name}:`}),
        ` ${counted(ranked.length)} by ${measure}${rest}`),
      ...(many ? [pictures.shift(), page.made("div", {className: "columns"}, ...pictures)] : pictures));
  });
  place.replaceChildren(summary(all), ...parts);
  return figures;
};

const figures = page.data("figures"), tables = page.data("tables");
if (document.getElementById("rankings"))
  Object.assign(figures, rank(document.getElementById("rankings"), tables.problems));
page.draw(figures);
for (const [name, table] of Object.entries(tables)) {
  for (const column of table.columns) column.title ??= HEADINGS[column.name];
  page.table(document.getElementById(`table-${name}`), table);
}
