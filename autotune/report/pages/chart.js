// Line charts in SVG, in pixels of the page: drawn anew when their width changes.
"use strict";
const chart = (() => {
  const svg = (tag, attributes, ...children) => {
    const result = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) result.setAttribute(name, value);
    result.append(...children);
    return result;
  };
  const charts = new Map();
  const resized = new ResizeObserver((entries) => {
    for (const {target} of entries) if (charts.has(target)) draw(target);
  });
  const chart = (target, content) => {
    if (!charts.has(target)) {
      resized.observe(target);
      target.addEventListener("pointermove", (event) => cross(target, event));
      target.addEventListener("pointerleave", () => draw(target));
    }
    charts.set(target, content);
    draw(target);
  };
  // {x, y: {least, most, ticks: [[value, text]], title, log}, lines: [{points, name}],
  //  marks: [{x, y, name}], caption, say(x)}; the points of a line are corners.
  const draw = (target) => {
    const {x, y, lines, marks, caption} = charts.get(target);
    const {width, height} = target.getBoundingClientRect();
    if (width === 0) return;
    const area = {left: 50, top: 8, width: width - 62, height: height - 50};
    const scaled = (axis, value, start, length) => {
      const [low, high, at] = [axis.least, axis.most, value].map(axis.log ? Math.log : Number);
      return (start + length * (at - low) / (high - low)).toFixed(4);
    };
    const px = (value) => scaled(x, value, area.left, area.width);
    const py = (value) => scaled(y, value, area.top + area.height, -area.height);
    const [right, bottom] = [area.left + area.width, area.top + area.height];
    const fitting = x.ticks.filter((_, index) =>
      index % Math.ceil(x.ticks.length * 34 / area.width) === 0);
    target.replaceChildren(
      ...y.ticks.flatMap(([value, text]) => [
        svg("line", {class: "grid", x1: area.left, x2: right, y1: py(value), y2: py(value)}),
        svg("text", {x: area.left - 7, y: py(value), dy: "0.35em", "text-anchor": "end"}, text)]),
      ...fitting.flatMap(([value, text]) => [
        svg("line", {class: "axis", x1: px(value), x2: px(value), y1: bottom, y2: bottom + 4}),
        svg("text", {x: px(value), y: bottom + 17, "text-anchor": "middle"}, text)]),
      svg("line", {class: "axis", x1: area.left, x2: right, y1: bottom, y2: bottom}),
      svg("text", {x: right, y: height - 3, "text-anchor": "end"}, x.title),
      ...lines.map(({points, name}) => svg("path", {class: `line ${name}`,
        d: points.map(([a, b], index) => `${index ? "L" : "M"}${px(a)} ${py(b)}`).join("")})),
      ...marks.map((mark) => svg("circle", {class: `mark ${mark.name}`, r: 6,
        cx: px(mark.x), cy: py(mark.y)})));
    target.area = area;
    target.parentElement.querySelector("figcaption").textContent = caption;
  };
  const cross = (target, event) => {
    const {x, say} = charts.get(target), {area} = target;
    const box = target.getBoundingClientRect();
    const share = (event.clientX - box.left - area.left) / area.width;
    draw(target);
    if (share < 0 || share > 1) return;
    const at = area.left + share * area.width;
    const [low, high] = [x.least, x.most].map(x.log ? Math.log : Number);
    const value = low + share * (high - low);
    target.append(svg("line", {class: "cross", x1: at, x2: at, y1: area.top,
      y2: area.top + area.height}));
    target.parentElement.querySelector("figcaption").textContent =
      say(x.log ? Math.exp(value) : value);
  };
  return chart;
})();
