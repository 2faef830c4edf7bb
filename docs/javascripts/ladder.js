// The ladder shows the rung that the address names, or else the first.
"use strict";
addEventListener("load", () => {
  const links = [...document.querySelectorAll(".ladder a")];
  const rungs = [...document.querySelectorAll(".rung")];
  for (const rung of rungs.slice(1)) rung.remove();
  let shown = rungs[0];
  const show = () => {
    const hash = decodeURIComponent(location.hash);
    const chosen = rungs.find((rung) => `#${rung.querySelector("h2").id}` === hash);
    shown.replaceWith(chosen ?? shown);
    shown = chosen ?? shown;
    for (const link of links)
      link.ariaCurrent = String(link.hash === `#${shown.querySelector("h2").id}`);
    if (chosen) chosen.scrollIntoView();
  };
  addEventListener("hashchange", show);
  show();
});
