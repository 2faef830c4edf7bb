// The explorer: its controls, its address, its explanations, and what it shows of the model.
"use strict";
(() => {
  const [NUMBERS, PRESETS] = ["numbers", "presets"].map(page.data);
  const {TABLES, CARDS, PRECISIONS, L2, evaluate, allocation, room, tile} = model;
  const DASH = "\u2013";
  const element = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const {made, count} = page;

  // The setting, and its text behind the # of the address.

  const BLOCK = ["threads", "registers", "shared", "barriers", "cluster", "carveOut"];
  const TILE = ["compute", "tile_m", "tile_n", "tile_k", "stages", "tile_threads", "other"];
  const KEPT = ["device", ...BLOCK, ...TILE];
  const CHOICES = {
    tab: all("main > section").map((section) => section.id),
    device: Object.keys(CARDS),
    cluster: ["1", ...page.data("clusters").map(String)],
    carveOut: ["", ...Array.from({length: 101}, (_, share) => String(share))],
    compute: Object.keys(PRECISIONS),
    against: ["", "kept", ...Object.keys(CARDS)],
  };
  const begun = () => ({tab: CHOICES.tab[0], device: page.data("start"), cluster: "1", carveOut: "",
    compute: "f32", against: "",
    ...Object.fromEntries(Object.entries(NUMBERS).map(([name, [, , first]]) => [name, first]))});
  const most = (name, device) =>
    name === "shared" ? CARDS[device].limits.shared_per_block_optin : NUMBERS[name][1];

  let state = begun(), kept = null;

  const address = () => {
    const words = new URLSearchParams({tab: state.tab, device: state.device});
    const first = begun(), shown = state.tab === "tile" ? TILE : state.tab === "block" ? BLOCK : [];
    for (const name of [...BLOCK, ...TILE])
      if (shown.includes(name) || state[name] !== first[name]) words.set(name, state[name]);
    if (state.against) words.set("against", state.against);
    if (state.against === "kept") for (const name of KEPT) words.set(`kept.${name}`, kept[name]);
    return `#${words}`;
  };

  // Reads an address; what it does not understand keeps its first value and is reported.
  const read = (hash) => {
    const words = new URLSearchParams(hash.slice(1)), wrong = new Set(words.keys());
    const take = (target, name, prefix = "") => {
      const key = prefix + name, text = words.get(key);
      const choices = Object.hasOwn(CHOICES, name) ? CHOICES[name] : null;
      const [least] = choices ? [] : NUMBERS[name];
      const good = text !== null && (choices ? choices.includes(text) : /^\d{1,7}$/.test(text)
        && Number(text) >= least && Number(text) <= most(name, target.device));
      if (good) target[name] = choices ? text : Number(text);
      if (good) wrong.delete(key);
      return good;
    };
    const result = begun(), other = begun();
    for (const name of ["tab", ...KEPT, "against"]) take(result, name);
    const whole = KEPT.filter((name) => take(other, name, "kept.")).includes("device");
    for (const [each, prefix] of [[result, ""], [other, "kept."]]) {
      each.shared = Math.min(each.shared, most("shared", each.device));
      if (each.cluster === "1" || CARDS[each.device].clusters) continue;
      each.cluster = "1";
      wrong.add(`${prefix}cluster`);
    }
    if (result.against === "kept" && !whole) { result.against = ""; wrong.add("against"); }
    return {result, other: whole ? other : null, wrong: [...wrong]};
  };

  let waiting = 0;
  const write = (how) => {
    clearTimeout(waiting);
    waiting = 0;
    if (location.hash !== address()) history[how](null, "", address());
  };
  // Moves of a slider replace the entry of the history, soon; a step adds one.
  const moved = () => {
    clearTimeout(waiting);
    waiting = setTimeout(write, 250, "replaceState");
  };
  const settle = () => { if (waiting) write("replaceState"); };

  const restore = () => {
    clearTimeout(waiting);
    waiting = 0;
    const {hash} = location;
    if (hash && !hash.includes("=")) return;  // a place of the page
    const {result, other, wrong} = read(hash);
    state = result;
    kept = other ?? kept;
    quiet();
    const names = wrong.slice(0, 3).map((name) => name.slice(0, 24)).join(", ");
    element("notice").textContent = wrong.length
      ? `Not understood in the address, so left as it was: ${names}${wrong.length > 3 ? ", \u2026" : ""}.`
      : "";
    render();
  };

  // Terms: each has a hidden description; one tip shows it on hover and on focus.

  const TERMS = page.data("terms");
  const tip = made("div", {id: "tip", hidden: true});
  tip.setAttribute("role", "tooltip");
  document.querySelector("main").append(tip);
  for (const [word, meaning] of Object.entries(TERMS)) {
    const id = `term-${word.replaceAll(" ", "-")}`;
    document.body.append(made("span", {id, hidden: true, textContent: meaning}));
    for (const term of all(`dfn[data-term="${word}"]`)) {
      term.className = "term";
      term.tabIndex = 0;
      term.setAttribute("aria-describedby", id);
    }
  }
  // What a term means for the block that is shown.
  const here = (word) => {
    const own = state.tab === "tile" ? {...state, ...tile(state).block} : state;
    const {threads, registers, shared} = own;
    const taken = allocation(own), {limits} = CARDS[state.device];
    if (["granularity", "registers"].includes(word) && !limits.granularity)
      return `Here: ${registers} registers a thread are allocated as `
        + `${taken.registers / taken.warps / limits.warp_size}.`;
    if (word === "warp") return `Here: ${threads} threads are ${taken.warps} warps.`;
    if (["shared memory", "reserved shared memory"].includes(word))
      return `Here: ${count(shared)} bytes are allocated as ${count(taken.shared)}.`;
    if (word === "carve-out")
      return `Here: the SM has ${count(taken.sm / 1024)} KiB of shared memory.`;
    return "";
  };
  const place = (term) => {
    tip.replaceChildren(made("strong", {textContent: term.dataset.term}),
      made("p", {textContent: `${TERMS[term.dataset.term]}.`}));
    const now = here(term.dataset.term);
    if (now) tip.append(made("p", {className: "here", textContent: now}));
    tip.hidden = false;
    const at = term.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const under = at.bottom + 6 + size.height < innerHeight || at.top < size.height + 6;
    tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - size.width - 12))}px`;
    tip.style.top = `${under ? at.bottom + 6 : at.top - 6 - size.height}px`;
  };
  let leaving = 0, current = null;
  const hide = () => { tip.hidden = true; };
  const over = ({target}) => {
    const term = target.closest?.(".term");
    if (!term && !tip.contains(target)) return;
    clearTimeout(leaving);
    if (term) place(current = term);
  };
  const out = ({target}) => {
    if (!target.closest?.(".term, #tip")) return;
    clearTimeout(leaving);
    leaving = setTimeout(hide, 200);
  };
  for (const [event, act] of [["mouseover", over], ["focusin", over], ["mouseout", out],
    ["focusout", out]]) document.addEventListener(event, act);
  document.addEventListener("click", (event) => {  // a term in a label does not go to its field
    if (event.target.closest(".term")) event.preventDefault();
  });
  document.addEventListener("keydown", ({key}) => { if (key === "Escape") hide(); });
  document.addEventListener("scroll", () => { if (!tip.hidden) place(current); },
    {passive: true, capture: true});

  const AXES = {
    threads: {title: "threads a block", tick: 128, unit: 1},
    registers: {title: "registers a thread", tick: 32, unit: 1},
    shared: {title: "KiB of shared memory a block", tick: 16384, unit: 1024},
  };
  const every = (step, end, text) =>
    Array.from({length: Math.floor(end / step) + 1}, (_, i) => [i * step, text(i * step)]);
  const SHARES = every(0.25, 1, (share) => `${100 * share}%`);

  // The corners of the staircase of Python's `Curve`: level up to each amount.
  const stairs = (name, chosen) => {
    const amounts = TABLES[CARDS[chosen.device].tables].amounts[name];
    const levels = amounts.map((amount) => evaluate({...chosen, [name]: amount}));
    return {amounts, levels, corners: amounts.flatMap((amount, index) =>
      [[index ? amounts[index - 1] : amount, levels[index].share], [amount, levels[index].share]])};
  };
  // The steps of a staircase in words, for those who do not see it.
  const told = ({amounts, levels}, most = 12) => {
    const ends = amounts.map((amount, index) => [amount, levels[index].text])
      .filter(([, text], index) => levels[index + 1]?.text !== text);
    const words = ends.slice(0, most).map(([amount, text]) => `${text} up to ${count(amount)}`);
    return words.join(", ") + (ends.length > most ? ", and so on" : "");
  };

  const curve = (name, base) => {
    const {title, tick, unit} = AXES[name], target = element(`curve-${name}`);
    const own = stairs(name, state), other = base && stairs(name, base);
    const result = evaluate(state), words = title.replace("KiB", "bytes");
    const end = Math.max(own.amounts.at(-1), other?.amounts.at(-1) ?? 0, state[name]);
    const sentence = (each, amount) =>
      `${each.text}, ${each.blocks} ${each.blocks === 1 ? "block" : "blocks"}, `
      + `${each.blocks ? "limited by" : "does not fit:"} ${each.limiters.join(" and ")}`;
    chart(target, {
      x: {least: 0, most: end, title, ticks: every(tick, end, (value) => String(value / unit))},
      y: {least: 0, most: 1, ticks: SHARES},
      lines: [...(other ? [{points: other.corners, name: "base"}] : []),
        {points: own.corners, name: ""}],
      marks: [...(base ? [{x: base[name], y: evaluate(base).share, name: "base"}] : []),
        {x: state[name], y: result.share, name: ""}],
      caption: `At ${count(state[name])} ${words}: ${sentence(result)}.`,
      say: (value) => {
        const amount = Math.max(own.amounts[0], Math.round(value));
        const [now, then] = [state, base].map((each) => each && evaluate({...each, [name]: amount}));
        return `At ${count(amount)} ${words}: ${sentence(now)}.`
          + (then ? ` Baseline: ${sentence(then)}.` : "");
      },
    });
    target.setAttribute("aria-label", `Occupancy over ${words}: ${told(own)}. This block: `
      + `${count(state[name])}, ${result.text}.${other ? ` Baseline: ${told(other)}.` : ""}`);
  };

  const roof = (now, base, before) => {
    const target = element("roof"), card = CARDS[state.device];
    target.parentElement.hidden = now.peak === undefined;
    if (target.parentElement.hidden) return;
    const known = base && before.peak !== undefined ? CARDS[base.device] : null;
    const roofs = [[card, now.peak, ""], ...(known ? [[known, before.peak, "base"]] : [])];
    const ridges = roofs.map(([each, peak]) => peak / each.bandwidth);
    const least = Math.min(0.25, now.intensity, known ? before.intensity : 1);
    const end = 2 * Math.max(256, now.intensity, ...ridges);
    const low = Math.min(...roofs.map(([each, peak]) => Math.min(peak, least * each.bandwidth)));
    const high = 2 * Math.max(...roofs.map(([, peak]) => peak));
    const line = (bandwidth, peak) => [[least, Math.min(peak, least * bandwidth)],
      [Math.min(end, Math.max(least, peak / bandwidth)), Math.min(peak, end * bandwidth)],
      [end, Math.min(peak, end * bandwidth)]];
    const powers = (base, first, last) => Array.from(
      {length: Math.floor(last) - Math.ceil(first) + 1}, (_, i) => base ** (Math.ceil(first) + i));
    const flops = (value) => page.quantity(value, "FLOP/s");
    const short = (value) => value >= 1e12 ? `${value / 1e12} T` : `${value / 1e9} G`;
    const bound = (each, value) => Math.min(each.peak, value * each.memory / each.intensity);
    chart(target, {
      x: {least, most: end, log: true, title: "FLOP per byte that a block loads",
        ticks: powers(2, Math.log2(least), Math.log2(end)).map((value) => [value, String(value)])},
      y: {least: low, most: high, log: true, ticks:
        powers(10, Math.log10(low), Math.log10(high)).map((value) => [value, short(value)])},
      lines: [{points: line(L2 * card.bandwidth, now.peak), name: "faint"},
        ...roofs.map(([each, peak, name]) => ({points: line(each.bandwidth, peak), name})).reverse()],
      marks: [...(known ? [{x: before.intensity, y: before.attainable, name: "base"}] : []),
        {x: now.intensity, y: now.attainable, name: ""}],
      caption: `FLOP/s. This tile: ${now.intensity.toPrecision(4)} FLOP per byte, at most `
        + `${flops(now.attainable)} from device memory. Dotted: from L2, as fitted on an H100.`,
      say: (value) => `At ${value.toPrecision(3)} FLOP per byte: at most ${flops(bound(now, value))}`
        + ` from device memory${known ? `; baseline ${flops(bound(before, value))}` : ""}.`,
    });
    target.setAttribute("aria-label", `Roofline of ${card.name}: device memory feeds `
      + `${page.quantity(card.bandwidth, "B/s")}, up to a peak of ${flops(now.peak)} from `
      + `${(now.peak / card.bandwidth).toPrecision(3)} FLOP per byte on. This tile has `
      + `${now.intensity.toPrecision(4)} FLOP per byte and reaches at most ${flops(now.attainable)}.`);
  };

  // What the page shows.

  const show = (id, text, before) => {
    element(id).textContent = text;
    element(id).nextElementSibling.textContent = before === undefined ? "" : `baseline ${before}`;
  };
  const joined = ({blocks, limiters}) =>
    blocks ? limiters.join(" and ") : `does not fit: ${limiters.join(" and ")}`;
  const clusters = (each) => each.clusters === null ? DASH
    : `${each.clusters}${each.card.predicted ? ", expected" : ""}`;
  const warps = (each) => `${each.warps} of ${each.tables.resident_warps.at(-1)}`;
  const allowed = (value, tables) => value === null ? "no limit"
    : value > tables.blocks ? `more than ${tables.blocks}` : String(value);
  const UNITS = {registers: " a thread", "shared memory": " bytes"};

  const cells = (row, texts) => {
    while (row.cells.length <= texts.length) row.append(made("td"));
    texts.forEach((text, index) => {
      const cell = row.cells[index + 1], head = row.closest("table").tHead.rows[0].cells[index + 1];
      cell.textContent = text;
      cell.className = head.className;
    });
  };

  // The differences from the baseline in a sentence: pairs of [what, now, before].
  const said = (id, base, pairs) => {
    const different = pairs.filter(([, now, before]) => now !== before);
    const words = different.map(([what, now, before]) => `${what} ${now} instead of ${before}`);
    element(id).replaceChildren(...(base ? [made("strong", {textContent: "Against the baseline"}),
      ` (${CARDS[base.device].name}): ${words.join("; ") || "no difference"}.`] : []));
  };

  const limitRows = (result, before) => {
    const {limits} = result.card, taken = allocation(state);
    const now = room(result, result.blocks), more = room(result, result.blocks + 1);
    const amount = (amounts, name) => !(name in UNITS) ? ""
      : amounts[name] === null ? DASH : `${count(amounts[name])}${UNITS[name]}`;
    const slots = result.tables.slot === 1 ? [state.threads, limits.threads_per_sm]
      : [taken.warps, result.tables.resident_warps.at(-1)];
    const takes = {
      "warps": [`${count(state.threads)} threads`, ...slots],
      "blocks": [1, 1, limits.blocks_per_sm],
      "registers": [`${state.registers} a thread`, taken.registers, limits.registers_per_sm],
      "shared memory": [`${count(state.shared)} bytes`, taken.shared, taken.sm],
      "barriers": [state.barriers, state.barriers,
        limits.barriers_per_slot === null ? null : limits.barriers_per_slot * limits.blocks_per_sm],
    };
    for (const row of element("limits").tBodies[0].rows) {
      const name = row.dataset.limit, [own, allocated, whole] = takes[name];
      row.className = result.limiters.includes(name) ? "binding" : "";
      cells(row, [allowed(result.limits[name], result.tables),
        before ? allowed(before.limits[name], before.tables) : "", own, count(allocated),
        whole === null ? DASH : count(whole), amount(now, name), amount(more, name)]);
    }
  };

  const command = () => {
    const quoted = /^[\w.-]+$/.test(state.device) ? state.device
      : `'${state.device.replaceAll("'", "'\\''")}'`;
    const text = `autotune occupancy ${quoted} --threads ${state.threads}`
      + ` --registers ${state.registers} --shared ${state.shared}`
      + (state.barriers === 1 ? "" : ` --barriers ${state.barriers}`)
      + (state.carveOut === "" ? "" : ` --carve-out ${state.carveOut}`)
      + (state.cluster === "1" ? "" : ` --cluster ${state.cluster}`);
    const words = text.split(/ (?=--)/);  // a line never breaks at a hyphen
    element("command").replaceChildren(...words.flatMap((word, number) =>
      [...(number ? [" "] : []), made("span", {textContent: word})]));
  };

  const block = (base) => {
    const now = evaluate(state), before = base && evaluate(base);
    const rows = [["blocks", "blocks", (each) => String(each.blocks)], ["warps", "warps", warps],
      ["occupancy", "occupancy", (each) => each.text], ["limiters", "limited by", joined],
      ["clusters", "clusters", clusters],
      ["idle", "SMs idle", (each) => each.clusters === null ? DASH : String(each.idle)]];
    for (const [id, , text] of rows) show(id, text(now), before ? text(before) : undefined);
    for (const fact of all(".clustered")) fact.hidden = !now.clusters && !before?.clusters
      && now.clusters !== 0;
    said("said", base, before ? rows.map(([, what, text]) => [what, text(now), text(before)]) : []);
    limitRows(now, before);
    command();
    for (const name of Object.keys(AXES)) curve(name, base);
  };

  const flops = (value) => page.quantity(value, "FLOP/s");
  const tiled = (base) => {
    const now = tile(state), before = base && tile(base);
    const on = (each, text) => each ? text(each) : undefined;
    const reached = ({resident, attainable}) => resident.blocks ? attainable : undefined;
    const heroes = [["tile-blocks", "blocks", (each) => String(each.resident.blocks)],
      ["tile-occupancy", "occupancy", (each) => each.resident.text],
      ["attainable", "attainable", (each) => flops(reached(each))],
      ["share", "of the peak", (each) => page.percent(reached(each) / each.peak)]];
    for (const [id, , text] of heroes) show(id, text(now), on(before, text));
    said("tile-said", base,
      before ? heroes.map(([, what, text]) => [what, text(now), text(before)]) : []);
    const {tile_m: m, tile_n: n, tile_k: k, stages, tile_threads: threads, other, compute} = state;
    const {bandwidth, tensor = []} = CARDS[state.device];
    const speed = page.quantity(bandwidth, "B/s");
    const figures = {
      shared: [(each) => `${count(each.shared)} bytes`,
        `${stages} x ${k} x (${m} + ${n}) x ${now.bytes} bytes`],
      sums: [(each) => count(each.sums), `${m} x ${n} / ${threads}`],
      registers: [(each) => count(each.registers), `${count(now.sums)} + ${other}`
        + (now.registers > NUMBERS.registers[1] ? `, above ${NUMBERS.registers[1]}` : "")],
      limiters: [(each) => joined(each.resident), ""],
      intensity: [(each) => each.intensity.toPrecision(4),
        `2 x ${m} x ${n} / (${now.bytes} x (${m} + ${n}))`],
      memory: [(each) => flops(each.memory), bandwidth ? `${speed} x FLOP per byte` : ""],
      l2: [(each) => flops(each.l2), bandwidth ? `${L2.toPrecision(2)} x as much, as fitted on an H100` : ""],
      peak: [(each) => flops(each.peak), bandwidth
        ? `${PRECISIONS[compute][0]} on ${tensor.includes(compute) ? "tensor" : "CUDA"} cores` : ""],
    };
    for (const row of element("costs").tBodies[0].rows) {
      const [text, how] = figures[row.dataset.cost];
      cells(row, [text(now), on(before, text) ?? "", how]);
    }
    element("as-block").disabled = now.resident.blocks === 0;
    roof(now, base, before);
    for (const [index, row] of [...element("presets").tBodies[0].rows].entries()) {
      const preset = PRESETS[index], at = tile({...state, ...preset});
      cells(row, [at.intensity.toPrecision(3), at.memory ? count(at.memory / 1e9) : DASH,
        page.percent(reached(at) / at.peak), String(at.resident.blocks), at.resident.text,
        `${preset.tile_m} x ${preset.tile_n} x ${preset.tile_k}, ${PRECISIONS[preset.compute][0]}`,
        count(preset.tile_threads), count(at.shared)]);
    }
  };

  // The limits of a card by the keys of the table.
  const properties = (device) => {
    const card = CARDS[device], {limits, clusters: sizes, peaks, tensor} = card;
    const tables = TABLES[card.tables], own = limits.granularity;
    return {...limits, slot: tables.slot,
      capability: limits.compute_capability.join("."),
      registers_per_thread: NUMBERS.registers[1],
      warps_per_sm: tables.resident_warps.at(-1),
      register_unit: own ?? `${limits.register_unit} of a warp`,
      shared_unit: own ?? limits.shared_unit,
      carve_outs: limits.carve_outs.join(", ") || null,
      barriers_per_sm: limits.barriers_per_slot && limits.barriers_per_slot * limits.blocks_per_sm,
      clusters: sizes && Object.values(sizes).some(({counts}) => counts[1])
        ? Object.values(sizes).map(({counts}) => counts[1]).join(", ") : null,
      peak_tensor: tensor?.includes("bf16") ? peaks.bf16 : null};
  };
  const table = (base) => {
    const now = properties(state.device), before = base && properties(base.device);
    const rounded = (value) => Number(value.toFixed(2));
    const text = (value, unit) => value === null || value === undefined || value === 0 && unit !== "bytes"
      ? DASH : typeof value === "string" ? value
      : unit === "bytes" ? value >= 2 ** 30 ? `${rounded(value / 2 ** 30)} GiB`
        : value >= 2 ** 20 ? `${rounded(value / 2 ** 20)} MiB` : `${count(value)} bytes`
      : unit ? page.quantity(value, unit) : count(value);
    all("#properties .name").forEach((head, index) => {
      head.textContent = [state, base][index] ? CARDS[[state, base][index].device].name : "";
    });
    for (const row of all("#properties [data-key]")) {
      const {key, unit} = row.dataset, [own, other] = [now, before].map((each) => each?.[key]);
      const numbers = typeof own === "number" && typeof other === "number" && other !== 0;
      const different = Boolean(base) && own !== other;
      row.className = different ? "differs" : "";
      cells(row, [text(own, unit), base ? text(other, unit) : "", !different ? ""
        : numbers ? page.ratio(own / other) : "differs"]);
    }
  };

  // Fields: a number that acts as it is typed, beside a slider.

  const fields = {};
  const STEPS = {threads: 32, shared: 128, tile_threads: 32, tile_m: 8, tile_n: 8, tile_k: 8};
  const hints = {
    threads: () => {
      const {warps} = allocation(state), whole = 32 * warps === state.threads;
      return whole ? `${warps} warps` : `${state.threads} threads, allocated as ${warps} warps, ${32 * warps} threads`;
    },
    registers: () => CARDS[state.device].limits.granularity ? ""
      : `${state.registers} registers, allocated as `
        + `${allocation(state).registers / allocation(state).warps / 32}`,
    shared: () => `${Number((state.shared / 1024).toFixed(2))} KiB, allocated as `
      + `${count(allocation(state).shared)} bytes`,
  };
  // Takes a typed text: the number that counts, and a remark if it is another one.
  const taken = (name, text) => {
    const [least, highest] = [NUMBERS[name][0], most(name, state.device)];
    const value = text.trim() === "" ? NaN : Number(text);
    if (!Number.isFinite(value)) return [state[name], `Not a number; ${state[name]} counts.`];
    const whole = Math.round(value), number = Math.min(highest, Math.max(least, whole));
    return [number, number < whole ? `${count(whole)} is too much; ${count(number)}, the most, counts.`
      : number > whole ? `${count(whole)} is too little; ${count(number)}, the least, counts.`
      : whole !== value ? `${value} is not whole; ${count(number)} counts.` : ""];
  };
  for (const place of all("[data-number]")) {
    const name = place.dataset.number, label = place.querySelector("label").textContent;
    const slider = made("input", {type: "range", id: name, step: STEPS[name] ?? 1});
    slider.setAttribute("aria-label", `${label}, slider`);
    const number = made("input", {type: "number", id: `${name}-number`, step: 1});
    const remark = made("span", {className: "clamped"}), hint = made("span");
    const note = made("p", {id: `${name}-note`}, remark, hint);
    remark.setAttribute("role", "status");
    number.setAttribute("aria-describedby", note.id);
    place.append(slider, number, note);
    fields[name] = {slider, number, remark, hint};
    const mark = (text) => {
      remark.textContent = text;
      if (text) number.setAttribute("aria-invalid", "true");
      else number.removeAttribute("aria-invalid");
    };
    slider.addEventListener("input", () => {
      mark("");
      state[name] = taken(name, slider.value)[0];
      update();
    });
    number.addEventListener("input", () => {
      const [value, text] = taken(name, number.value);
      mark(text);
      state[name] = value;
      update(name);
    });
    number.addEventListener("change", () => {
      number.value = state[name];
      number.removeAttribute("aria-invalid");
    });
  }

  // Brings the controls to the state; a number that is being typed stays as it is.
  const sync = (typed) => {
    for (const [name, {slider, number, hint}] of Object.entries(fields)) {
      const [least] = NUMBERS[name], highest = most(name, state.device);
      Object.assign(slider, {min: STEPS[name] ? 0 : least, max: highest, value: state[name]});
      Object.assign(number, {min: least, max: highest});
      if (name !== typed) number.value = state[name];
      hint.textContent = hints[name]?.() ?? "";
    }
    for (const name of ["device", "against", "cluster", "carveOut", "compute"])
      element(name).value = state[name];
    element("cluster").disabled = !CARDS[state.device].clusters;
    for (const id of CHOICES.tab) {
      const [tab, shown] = [element(`tab-${id}`), id === state.tab];
      tab.setAttribute("aria-selected", String(shown));
      tab.tabIndex = shown ? 0 : -1;
      element(id).hidden = !shown;
    }
  };

  const render = (typed) => {
    const base = state.against === "" ? null
      : state.against === "kept" ? kept : {...state, device: state.against};
    const option = element("against").querySelector('[value="kept"]');
    option.hidden = option.disabled = kept === null;
    if (kept) option.textContent = `the kept baseline, ${CARDS[kept.device].name}`;
    document.body.classList.toggle("alone", base === null);
    sync(typed);
    const threads = state.tab === "tile" ? "tile_threads" : "threads";
    const words = ({device, ...each}) => state.tab === "tile"
      ? `${CARDS[device].name}: ${each.tile_m} x ${each.tile_n} x ${each.tile_k}, ${each[threads]} threads`
      : `${CARDS[device].name}: ${each.threads} threads, ${each.registers} registers, `
        + `${count(each.shared)} bytes`;
    for (const key of all(".key"))
      key.replaceChildren(...(base ? [made("span", {textContent: words(state)}),
        made("span", {className: "second", textContent: `baseline, ${words(base)}`})] : []));
    if (state.tab === "block") block(base);
    if (state.tab === "tile") tiled(base);
    if (state.tab === "card") table(base);
  };

  const update = (typed) => { render(typed); moved(); };
  const quiet = () => { for (const {remark} of Object.values(fields)) remark.textContent = ""; };
  const step = (changes) => {
    settle();
    Object.assign(state, changes);
    quiet();
    const highest = most("shared", state.device);
    if (state.shared > highest) {
      fields.shared.remark.textContent = `${count(state.shared)} is too much for this card; `
        + `${count(highest)}, the most, counts.`;
      state.shared = highest;
    }
    if (!CARDS[state.device].clusters) state.cluster = "1";
    element("notice").textContent = "";
    render();
    write("pushState");
  };

  // The controls that Python leaves to this script.

  const option = (value, textContent) => made("option", {value, textContent});
  const group = ([key, card]) => key.startsWith("textbook") ? "Textbook devices"
    : card.peaks ? "Cards" : "Compute capabilities";
  const devices = () => ["Cards", "Compute capabilities", "Textbook devices"].map((label) =>
    made("optgroup", {label}, ...Object.entries(CARDS).filter((entry) => group(entry) === label)
      .map(([key, card]) => option(key, card.name))));
  element("device").append(...devices());
  element("against").append(option("", "nothing"), option("kept", "the kept baseline"), ...devices());
  element("cluster").append(...CHOICES.cluster.map((size) => option(size, size === "1" ? "none" : size)));
  element("carveOut").append(...CHOICES.carveOut.map((share) =>
    option(share, share === "" ? "the largest" : `${share}%`)));
  element("compute").append(...Object.entries(PRECISIONS).map(([name, [label]]) => option(name, label)));
  for (const name of ["device", "against", "cluster", "carveOut", "compute"])
    element(name).addEventListener("change", ({target}) => step({[name]: target.value}));
  element("keep").addEventListener("click", () => {
    settle();
    kept = Object.fromEntries(KEPT.map((name) => [name, state[name]]));
    step({against: "kept"});
  });
  element("as-block").addEventListener("click", () => {
    step({...tile(state).block, cluster: "1", tab: "block"});
    element("tab-block").focus();
  });
  element("presets").tBodies[0].append(...PRESETS.map(({name, ...values}) => {
    const button = made("button", {type: "button", textContent: name});
    button.addEventListener("click", () => step(values));
    return made("tr", {}, made("th", {scope: "row"}, button));
  }));

  // The sections become the panels of tabs.
  const bar = made("div");
  bar.setAttribute("role", "tablist");
  bar.setAttribute("aria-label", "Views");
  for (const id of CHOICES.tab) {
    const heading = element(`${id}-title`), panel = element(id);
    const tab = made("button", {type: "button", id: `tab-${id}`, textContent: heading.textContent});
    for (const [name, value] of [["role", "tab"], ["aria-controls", id]]) tab.setAttribute(name, value);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    heading.className = "hidden";
    tab.addEventListener("click", () => step({tab: id}));
    bar.append(tab);
  }
  bar.addEventListener("keydown", (event) => {
    const at = CHOICES.tab.indexOf(state.tab), last = CHOICES.tab.length - 1;
    const next = {ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0,
      End: last}[event.key];
    if (next === undefined) return;
    event.preventDefault();
    step({tab: CHOICES.tab[next]});
    element(`tab-${state.tab}`).focus();
  });
  document.querySelector("nav").remove();
  document.querySelector("main").prepend(bar);

  addEventListener("popstate", restore);
  restore();
})();
