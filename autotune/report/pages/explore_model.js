// What follows from a setting of the explorer, as in autotune/occupancy.py and autotune/roofline.py:
// it looks the limits of a block up in Python's tables and takes the least.
"use strict";
const model = (() => {
  const [TABLES, CARDS, PRECISIONS, L2] = ["tables", "cards", "precisions", "l2"].map(page.data);

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

  // What an SM allocates to a block, and the bytes of shared memory that it then has.
  const allocation = (chosen) => {
    const limits = CARDS[chosen.device].limits;
    const rounded = (amount, unit) => Math.ceil(amount / unit) * unit;
    const warps = Math.ceil(chosen.threads / limits.warp_size);
    const slots = (unit) => rounded(chosen.threads, Math.min(unit, limits.warp_size));
    const shared = rounded(chosen.shared + limits.reserved_shared_per_block,
      limits.granularity ?? limits.shared_unit);
    const share = chosen.carveOut === "" ? 100 : Number(chosen.carveOut);
    const least = Math.max(shared, Math.floor(limits.shared_per_sm * share / 100));
    const sizes = limits.carve_outs.map((kib) => 1024 * kib);
    return {warps, shared,
      registers: limits.granularity
        ? rounded(chosen.registers * slots(limits.granularity), limits.granularity)
        : warps * rounded(chosen.registers * limits.warp_size, limits.register_unit),
      sm: sizes.find((size) => size >= least) ?? limits.shared_per_sm};
  };

  // What a block may take of each resource so that an SM holds `blocks` blocks.
  const room = (result, blocks) => {
    const {tables, row, shared} = result;
    const fits = blocks >= 1 && blocks <= tables.blocks && blocks <= tables.warps[row];
    const most = (table) => (fits && table[blocks - 1] >= 0 ? table[blocks - 1] : null);
    return {registers: most(tables.registers[row]), "shared memory": most(shared)};
  };

  const tile = (chosen) => {
    const {tile_m: m, tile_n: n, tile_k: k, stages, tile_threads: threads, other} = chosen;
    const card = CARDS[chosen.device], bytes = PRECISIONS[chosen.compute][1];
    const sums = Math.ceil(m * n / threads), registers = sums + other;
    const shared = stages * k * (m + n) * bytes;
    const block = {threads, registers, shared, barriers: 1, cluster: 1, carveOut: ""};
    const intensity = 2 * m * n / (bytes * (m + n));
    const costs = {bytes, sums, registers, shared, intensity, block,
      resident: evaluate({...block, device: chosen.device})};
    if (!card.peaks) return costs;
    const peak = card.peaks[chosen.compute], memory = card.bandwidth * intensity;
    return {...costs, peak, memory, l2: L2 * memory, attainable: Math.min(peak, memory)};
  };
  return {TABLES, CARDS, PRECISIONS, L2, evaluate, allocation, room, tile};
})();
