// The explorer: looks the limits of a block up in Python's tables and takes the least.
"use strict";
const explorer = (() => {
  const [TABLES, CARDS, INTENSITIES, PRECISIONS, SIDES, STAIRS] =
    ["tables", "cards", "intensities", "precisions", "sides", "stairs"].map(page.data);
  const SLIDERS = ["threads", "registers", "shared", "barriers"];
  const UNITS = {registers: " registers", shared: " bytes"};
  const element = (id) => document.getElementById(id);

  const setting = () => ({
    device: element("device").value,
    cluster: Number(element("cluster").value),
    carveOut: element("carve-out").value,
    ...Object.fromEntries(SLIDERS.map((name) => [name, Number(element(`${name}-number`).value)])),
  });

  // How many entries of a table that falls are at least the amount.
  const steps = (table, amount) => {
    const below = table.findIndex((most) => most < amount);
    return below < 0 ? table.length : below;
  };

  const evaluate = (chosen) => {
    const card = CARDS[chosen.device];
    const tables = TABLES[card.tables];
    const row = Math.ceil(chosen.threads / tables.slot) - 1;
    const shared =
      tables.shared[tables.carve_outs[chosen.carveOut === "" ? 0 : Number(chosen.carveOut) + 1]];
    const limits = {
      "warps": tables.warps[row],
      "blocks": tables.blocks,
      "registers": steps(tables.registers[row], chosen.registers),
      "shared memory": steps(shared, chosen.shared),
      "barriers": tables.barriers[chosen.barriers],
    };
    const taken = {"registers": chosen.registers, "shared memory": chosen.shared};
    for (const name of tables.unlimited) if (taken[name] === 0) limits[name] = null;
    const applying = Object.entries(limits).filter(([, allowed]) => allowed !== null);
    let blocks = Math.min(...applying.map(([, allowed]) => allowed));
    let clusters = null, idle = 0;
    const cluster = chosen.cluster > 1 && card.clusters ? card.clusters[chosen.cluster] : null;
    if (cluster && blocks > 0) {
      if (cluster.counts[1] === 0) blocks = 0;
      clusters = cluster.counts[blocks];
      idle = cluster.idle;
    } else if (cluster) clusters = 0;
    const limiters = applying.filter(([, allowed]) => allowed === blocks).map(([name]) => name);
    if (idle) limiters.push("clusters");
    const used = blocks * (row + 1);
    return {blocks, warps: tables.resident_warps[used], share: tables.shares[used],
      text: tables.texts[used], limits, limiters, clusters, idle, row, shared, tables, card};
  };

  // What a block may take of each resource so that an SM holds `blocks` blocks.
  const room = (result, blocks) => {
    const {tables, row, shared} = result;
    const fits = blocks >= 1 && blocks <= tables.blocks && blocks <= tables.warps[row];
    const most = (table) => (fits && table[blocks - 1] >= 0 ? table[blocks - 1] : null);
    return {registers: most(tables.registers[row]), "shared memory": most(shared)};
  };

  const show = (id, text) => { element(id).textContent = text; };
  const allowed = (value, tables) => value === null ? "no limit"
    : value > tables.blocks ? `more than ${tables.blocks}` : String(value);
  const KEYS = {"registers": "registers", "shared memory": "shared"};

  const limitRows = (result) => {
    const now = room(result, result.blocks), more = room(result, result.blocks + 1);
    const most = (amounts, name) => !(name in KEYS) ? ""
      : amounts[name] === null ? "\u2013"
      : `${page.count(amounts[name])}${UNITS[KEYS[name]]}`;
    return Object.entries(result.limits).map(([name, value]) => {
      const binding = result.limiters.includes(name);
      const row = page.made("tr", {className: binding ? "binding" : ""},
        page.made("th", {scope: "row", textContent: binding ? `${name} (binds)` : name}),
        page.made("td", {className: "number", textContent: allowed(value, result.tables)}),
        page.made("td", {textContent: most(now, name)}),
        page.made("td", {textContent: most(more, name)}));
      row.dataset.limit = name;
      return row;
    });
  };

  const command = (chosen) => {
    const quoted = /^[\w.-]+$/.test(chosen.device) ? chosen.device
      : `'${chosen.device.replaceAll("'", "'\\''")}'`;
    return `autotune occupancy ${quoted} --threads ${chosen.threads}`
      + ` --registers ${chosen.registers} --shared ${chosen.shared}`
      + (chosen.barriers === 1 ? "" : ` --barriers ${chosen.barriers}`)
      + (chosen.carveOut === "" ? "" : ` --carve-out ${chosen.carveOut}`)
      + (chosen.cluster === 1 ? "" : ` --cluster ${chosen.cluster}`);
  };

  const tile = (card) => {
    const compute = element("compute").value;
    const bytes = PRECISIONS[compute][1];
    const [m, n] = ["rows", "columns"].map((id) => SIDES.indexOf(Number(element(id).value)));
    const intensity = INTENSITIES[bytes][m][n];
    if (!card.peaks) return {compute, bytes, intensity};
    const peak = card.peaks[compute], bound = card.bandwidth * intensity;
    return {compute, bytes, intensity, peak, attainable: Math.min(peak, bound)};
  };

  const AXES = {
    threads: {title: "threads a block"},
    registers: {title: "registers a thread"},
    shared: {title: "KiB of shared memory a block", scale: 1024},
  };

  const curve = (name, chosen, result) => {
    const axis = AXES[name], scale = axis.scale ?? 1;
    const values = result.tables.amounts[name];
    const at = values.map((value) => evaluate({...chosen, [name]: value}));
    const hover = at.map((each) =>
      `${each.blocks} blocks, ${each.text}<br>limited by ${each.limiters.join(" and ")}`);
    const most = result.tables.resident_warps.at(-1);
    page.plot(element(`curve-${name}`), {
      data: [
        {x: values.map((value) => value / scale), y: at.map((each) => each.warps), text: hover,
          mode: "lines", line: {shape: STAIRS},
          hovertemplate: "%{x}: %{y} warps<br>%{text}<extra></extra>"},
        {x: [chosen[name] / scale], y: [result.warps], mode: "markers",
          marker: {size: 13, symbol: "diamond", color: "#e4572e"},
          hovertemplate: "this block: %{y} warps<extra></extra>"},
      ],
      layout: {showlegend: false, margin: {l: 52, r: 12, t: 12, b: 44},
        xaxis: {title: {text: axis.title}, rangemode: "tozero"},
        yaxis: {title: {text: "warps an SM"}, range: [0, most * 1.06]}},
    });
  };

  const roof = (card, now) => {
    const {compute, bytes, peak} = now;
    const points = new Map();
    for (const flop of INTENSITIES[bytes].flat())
      points.set(flop, Math.min(peak, card.bandwidth * flop));
    points.set(peak / card.bandwidth, peak);
    const xs = [...points.keys()].sort((a, b) => a - b);
    page.plot(element("roof"), {
      data: [
        {x: xs, y: xs.map((x) => points.get(x)), mode: "lines", name: "roofline",
          hovertemplate: "%{x:.3g} FLOP/B<br>%{y:.3s}FLOP/s<extra></extra>"},
        {x: [now.intensity], y: [now.attainable], mode: "markers", name: "tile",
          marker: {size: 13, symbol: "diamond", color: "#e4572e"},
          hovertemplate: "this tile: %{y:.3s}FLOP/s<extra></extra>"},
      ],
      layout: {showlegend: false, margin: {l: 64, r: 12, t: 12, b: 44},
        xaxis: {type: "log", dtick: 1, title: {text: "FLOP per byte of device memory"}},
        yaxis: {type: "log", dtick: 1, title: {text: "FLOP/s"}, exponentformat: "SI"}},
    });
  };

  const numbers = (chosen, result) => {
    show("blocks", result.blocks);
    show("warps", `${result.warps} of ${result.tables.resident_warps.at(-1)}`);
    show("occupancy", result.text);
    const joined = result.limiters.join(" and ");
    show("limiters", result.blocks ? joined : `does not fit: ${joined}`);
    show("clusters", result.clusters === null ? "\u2013"
      : `${result.clusters}${result.card.predicted ? ", expected" : ""}`);
    show("idle", result.clusters === null ? "\u2013" : result.idle);
    element("limits").replaceChildren(...limitRows(result));
    const words = command(chosen).split(/ (?=--)/);  // a line never breaks at a hyphen
    element("command").replaceChildren(...words.flatMap((word, number) =>
      [...(number ? [" "] : []), page.made("span", {textContent: word})]));
    const now = tile(result.card);
    show("intensity", now.intensity.toPrecision(4));
    element("intensity").dataset.value = now.intensity;
    show("attainable", page.quantity(now.attainable, "FLOP/s"));
    element("attainable").dataset.value = now.attainable ?? "";
    show("share", page.percent(now.attainable / now.peak));
    return now;
  };

  let waiting = 0;
  const update = () => {
    const chosen = setting();
    const result = evaluate(chosen);
    const now = numbers(chosen, result);
    if (waiting) return;
    waiting = requestAnimationFrame(() => {
      waiting = 0;
      const latest = setting(), outcome = evaluate(latest);
      for (const name of Object.keys(AXES)) curve(name, latest, outcome);
      if (outcome.card.peaks) roof(outcome.card, tile(outcome.card));
      element("roof").hidden = !outcome.card.peaks;
    });
    return now;
  };

  const adjust = () => {
    const card = CARDS[element("device").value];
    element("shared").max = element("shared-number").max = TABLES[card.tables].largest;
    element("cluster").disabled = !card.clusters;
    if (!card.clusters) element("cluster").value = "1";
    for (const name of SLIDERS) clamp(name, element(`${name}-number`));
  };

  // The number counts; the slider follows it as far as its steps allow.
  const clamp = (name, source) => {
    const number = element(`${name}-number`);
    const [least, most] = [Number(number.min), Number(number.max)];
    const value = Math.round(Number(source.value));
    number.value = Math.min(most, Math.max(least, Number.isFinite(value) ? value : least));
    element(name).value = number.value;
  };

  for (const name of SLIDERS) {
    element(name).addEventListener("input", () => { clamp(name, element(name)); update(); });
    element(`${name}-number`).addEventListener("change", () => {
      clamp(name, element(`${name}-number`));
      update();
    });
  }
  for (const id of ["device", "cluster", "carve-out", "compute", "rows", "columns"])
    element(id).addEventListener("change", () => { adjust(); update(); });
  adjust();
  update();
  return {evaluate, setting};
})();
