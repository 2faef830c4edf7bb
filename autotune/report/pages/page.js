// What every page has: its data, number formats, pictures in the page's colours, tables.
"use strict";
const page = (() => {
  const DASH = "\u2013";
  const data = (name) => JSON.parse(document.getElementById(`data-${name}`).textContent);
  const finite = (value) => value !== null && value !== undefined && Number.isFinite(value);

  // As in page.py.
  const digits = (value) => {
    const whole = Math.abs(value) >= 1 ? String(Math.trunc(Math.abs(value))).length : 1;
    const places = Math.max(0, 4 - whole);
    const [integer, fraction] = value.toFixed(places).split(".");
    const grouped = integer.replace(/\B(?=(\d{3})+$)/g, ",");
    return fraction === undefined ? grouped : `${grouped}.${fraction}`;
  };
  const timeUs = (value) => {
    if (!finite(value)) return DASH;
    if (value === 0) return "0 \u00b5s";
    for (const [size, unit] of [[1e6, "s"], [1e3, "ms"], [1, "\u00b5s"]])
      if (Math.abs(value) >= size) return `${digits(value / size)} ${unit}`;
    return `${digits(value * 1e3)} ns`;
  };
  const percent = (share, places = 1) =>
    finite(share) ? `${(share * 100).toFixed(places)}%` : DASH;
  const ratio = (value) => finite(value) ? `${value.toFixed(2)}x` : DASH;
  const count = (value) => Math.round(value).toLocaleString("en-US");
  const quantity = (value, unit) => {
    if (!finite(value)) return DASH;
    for (const [size, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(value) >= size) return `${digits(value / size)} ${prefix}${unit}`;
    return `${digits(value)} ${unit}`;
  };

  // Pictures: a figure is {data, layout} of plotly.js; the page adds its colours.
  const drawn = new Map();
  const paper = document.documentElement.classList;  // has "paper" while the page is printed
  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const themed = (layout) => {
    const line = {gridcolor: colour("line"), linecolor: colour("muted"), zerolinecolor: colour("line")};
    const result = {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: {...layout.font, color: colour("text")},
      modebar: {bgcolor: colour("surface"), color: colour("muted"), activecolor: colour("text")},
      hoverlabel: {bgcolor: colour("surface"), bordercolor: colour("line"),
        font: {color: colour("text")}, align: "left"},
    };
    for (const key of Object.keys(layout))
      if (/^[xy]axis\d*$/.test(key)) result[key] = {...layout[key], ...line};
    return result;
  };
  // The buttons are listed, as plotly.js may have others that upload a picture: "Share chart" of 4.
  const CONFIG = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
  };
  const plot = (element, figure) => {
    drawn.set(element, figure);
    const layout = themed(figure.layout);
    // Stated, as plotly.js measures only at the first time; 0 in details that are closed.
    if (element.clientWidth) layout.width = element.clientWidth;
    if (element.clientHeight) layout.height ??= element.clientHeight;
    return Plotly.react(element, figure.data, layout, {...CONFIG,
      toImageButtonOptions: {format: "svg", filename: element.id || "picture"}});
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const [element, figure] of drawn) plot(element, figure);
  });

  // Printed pages have light colours, pictures of the paper's width, and their details open.
  addEventListener("beforeprint", () => {
    paper.add("paper");
    for (const part of document.querySelectorAll("details:not([open])"))
      part.open = part.dataset.closed = true;
    for (const [element, figure] of drawn) plot(element, figure);
  });
  addEventListener("afterprint", () => {
    paper.remove("paper");
    for (const [element, figure] of drawn) plot(element, figure);
    for (const part of document.querySelectorAll("details[data-closed]")) {
      part.open = false;
      delete part.dataset.closed;
    }
  });

  // Visible pictures are drawn at once, those nearby one at a time once these are painted, and the
  // others when they come near, or before the page is printed.
  const draw = (figures) => {
    const waiting = new Map();
    for (const element of document.querySelectorAll("[data-figure]"))
      if (figures[element.dataset.figure])
        waiting.set(element, figures[element.dataset.figure]);
    const show = (element) => {
      if (!waiting.has(element)) return;
      const figure = waiting.get(element);
      waiting.delete(element);
      plot(element, figure);
    };
    const observer = new IntersectionObserver((entries) => {
      for (const {target, isIntersecting, boundingClientRect: box} of entries) {
        if (!isIntersecting) continue;
        observer.unobserve(target);
        if (box.top < innerHeight && box.bottom > 0) show(target);
        else requestAnimationFrame(() => setTimeout(show, 0, target));
      }
    }, {rootMargin: "300px"});
    for (const element of waiting.keys()) observer.observe(element);
    addEventListener("beforeprint", () => [...waiting.keys()].forEach(show));
  };

  // Tables: {columns: [{name, kind, title}], rows: [[...]]}; kinds are text, time, speed,
  // percent, number, ratio. A column's title is its heading; files have its name.
  const NUMBERS = new Intl.NumberFormat("en-US", {maximumFractionDigits: 3});
  const FORMATS = {time: timeUs, percent: (v) => percent(v), ratio,
    speed: (v) => finite(v) ? digits(v) : DASH,
    number: (v) => finite(v) ? NUMBERS.format(v) : DASH};
  const cell = (kind, value) => FORMATS[kind] ? FORMATS[kind](value) : String(value ?? "");
  const compare = (a, b) => {
    const missing = (value) => value === null || value === undefined || value === "";
    if (missing(a) || missing(b)) return null;
    return typeof a === "number" && typeof b === "number"
      ? a - b : String(a).localeCompare(String(b), "en", {numeric: true});
  };
  const csv = (columns, rows) => {
    const quoted = (value) => {
      const text = String(value ?? "");
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [columns.map((column) => column.name), ...rows]
      .map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
  };
  const save = (name, text, kind) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type: kind}));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const made = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  // Text as the filter compares it: without case and thousands' separators, `\u00d7` as x.
  const plain = (text) =>
    text.normalize("NFKC").toLowerCase().replaceAll("\u00d7", "x").replaceAll(",", "");
  const SHOWN = 100;
  // The text of a row as it is shown, and with its columns' names, so that `stages=4` finds it.
  const found = (columns, row) => {
    const shown = row.map((value, index) => plain(cell(columns[index].kind, value)));
    const named = shown.map((text, index) => ` ${columns[index].name}=${text} `);
    return {shown: shown.join(" "), named: named.join("").toLowerCase()};
  };
  // Fills the element with a table that sorts by a click on a heading, filters by words, and
  // exports the rows that the filter leaves. Without `controls` it has neither filter nor export.
  const table = (element, {columns, rows, caption, file = "table.csv", controls = true}) => {
    let order = null, descending = false, words = [], all = false;
    const body = made("tbody");
    const state = made("span", {className: "muted"});
    state.setAttribute("role", "status");
    const more = made("button", {type: "button"});
    let texts = null;  // made for the first filter, as it takes a while
    const chosen = () => {
      if (words.length && texts === null) texts = rows.map((row) => found(columns, row));
      const left = rows.map((_, index) => index).filter((index) => words.every(
        (word) => word.includes("=")
          ? texts[index].named.includes(` ${word}`) : texts[index].shown.includes(word)));
      if (order !== null) left.sort((a, b) => {
        const [first, second] = [rows[a][order], rows[b][order]];
        const result = compare(first, second);
        if (result !== null) return descending ? -result : result;
        const empty = (value) => value === null || value === undefined || value === "";
        return empty(first) - empty(second);
      });
      return left.map((index) => rows[index]);
    };
    const render = () => {
      const left = chosen();
      const visible = all ? left : left.slice(0, SHOWN);
      body.replaceChildren(...visible.map((row) => made("tr", {}, ...row.map((value, index) =>
        made("td", {textContent: cell(columns[index].kind, value),
          className: columns[index].kind === "text" ? "" : "number"})))));
      const part = visible.length < left.length ? `, the first ${visible.length} shown` : "";
      state.textContent = `${count(left.length)} of ${count(rows.length)} rows${part}`;
      more.hidden = visible.length === left.length;
      more.textContent = `Show all ${count(left.length)} rows`;
    };
    const headings = columns.map((column, index) => {
      // Shown times have units; in a CSV file they are microseconds.
      const title = column.title
        ?? (column.kind === "time" ? column.name.replace(/_us$/, "") : column.name);
      const button = made("button", {type: "button", textContent: title});
      const heading = made("th", {scope: "col", className: column.kind === "text" ? "" : "number"},
        button);
      button.addEventListener("click", () => {
        descending = order === index ? !descending : false;
        order = index;
        for (const other of headings) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
        render();
      });
      return heading;
    });
    more.addEventListener("click", () => { all = true; render(); });
    const filter = made("input", {type: "search", placeholder: "words to find"});
    filter.addEventListener("input", () => {
      // A configuration is found by its parts: `simt:bm=128,bn=64` is simt, bm=128 and bn=64.
      words = filter.value.split(/\s+/)
        .flatMap((word) => word.includes("=") ? word.split(/[,:]/) : word).map(plain)
        .filter(Boolean);
      render();
    });
    const download = made("button", {type: "button", textContent: "Save as CSV"});
    download.addEventListener("click", () => save(file, csv(columns, chosen()), "text/csv"));
    const scroll = made("div", {className: "scroll limited", tabIndex: 0},
      made("table", {}, made("caption", {textContent: caption}),
        made("thead", {}, made("tr", {}, ...headings)), body));
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", caption);
    const bar = made("div", {className: "controls"},
      made("label", {}, "Filter ", filter), download, state);
    element.replaceChildren(...(controls ? [bar] : []), scroll, more);
    render();
  };
  return {data, timeUs, percent, ratio, count, quantity, plot, draw, table, csv, save, made};
})();
