// What makes pages live. Without it they show the same, as it was when they were loaded.
"use strict";
(() => {
  const main = () => document.getElementById("main");
  const sign = document.getElementById("live");

  // One stream of events tells that something has changed; htmx then asks for the content again.
  function follow(address) {
    const stream = new EventSource(address);
    stream.addEventListener("open", () => { sign.textContent = "live"; });
    stream.addEventListener("error", () => { sign.textContent = "reconnecting …"; });
    stream.addEventListener("changed", () => main().dispatchEvent(new Event("changed")));
    stream.addEventListener("end", () => {
      stream.close();
      sign.textContent = "";
      main().dispatchEvent(new Event("changed"));
    });
    window.addEventListener("pagehide", () => stream.close());
    window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  }
  if (sign && sign.dataset.live) follow(sign.dataset.live);

  // Curves: uPlot draws over the pictures of the server.
  const plots = new Map();
  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }
  function options(curve, box) {
    const grid = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--faint"), grid, ticks: grid };
    const isShare = curve.metric.endsWith("density");
    return {
      width: Math.max(200, box.clientWidth),
      height: 220,
      scales: { x: { time: false }, ...(isShare ? { y: { range: [0, 1] } } : {}) },
      axes: [axis, { ...axis, size: 56 }],
      series: [
        { label: "step" },
        { label: curve.metric, stroke: colour(curve.metric.startsWith("dense/") ? "--dense" : "--pruned"), width: 1.6,
          value: (_, value) => (value === null ? "" : value.toFixed(4)) },
      ],
    };
  }
  function draw(curve) {
    const box = document.querySelector(`[data-curve="${CSS.escape(curve.metric)}"]`);
    const data = [curve.steps, curve.values];
    if (!box) return;
    const old = plots.get(box);
    if (old) { old.setData(data); return; }
    const plot = new uPlot(options(curve, box), data);
    box.replaceChildren(plot.root);
    plot.root.setAttribute("aria-hidden", "true"); // the table below says the same
    plots.set(box, plot);
  }
  async function drawAll() {
    const holder = document.querySelector("[data-curves]");
    if (!holder || typeof uPlot === "undefined") return;
    const answer = await fetch(holder.dataset.curves);
    if (!answer.ok) return;
    (await answer.json()).curves.forEach(draw);
  }
  window.addEventListener("resize", () => {
    plots.forEach((plot, box) => plot.setSize({ width: Math.max(200, box.clientWidth), height: 220 }));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { plots.clear(); drawAll(); });

  // A log grows at its end.
  const log = document.getElementById("log");
  let isReading = false;
  async function readLog() {
    if (isReading || document.hidden) return;
    isReading = true;
    try {
      const answer = await fetch(`${log.dataset.log}&offset=${log.dataset.offset}`);
      if (!answer.ok) return;
      const bytes = new Uint8Array(await answer.arrayBuffer());
      const end = bytes.lastIndexOf(10) + 1; // whole lines only
      if (!end) return;
      const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
      // eslint-disable-next-line no-control-regex
      const text = new TextDecoder().decode(bytes.slice(0, end)).replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "");
      log.append(text);
      log.dataset.offset = Number(log.dataset.offset) + end;
      if (isAtEnd) log.scrollTop = log.scrollHeight;
    } finally {
      isReading = false;
    }
  }
  if (log) log.scrollTop = log.scrollHeight;
  if (log && log.dataset.log) {
    setInterval(readLog, 1000);
    document.addEventListener("visibilitychange", readLog);
  }

  // A run is lit wherever the page shows it: the one under the pointer, else the one with the focus.
  let under = null;
  const runs = (element) => element.dataset.run.split(" ");
  function light() {
    const one = [under, document.activeElement].map((place) => place && place.closest("[data-run]")).find(Boolean);
    const wanted = new Set(one ? runs(one) : []);
    document.querySelectorAll("[data-run]").forEach((other) => {
      other.classList.toggle("lit", runs(other).some((run) => wanted.has(run)));
    });
  }
  if (document.querySelector("[data-run]")) {
    document.addEventListener("mouseover", (event) => { under = event.target; light(); });
    document.documentElement.addEventListener("mouseleave", () => { under = null; light(); });
    document.addEventListener("focusin", light);
    document.addEventListener("focusout", () => setTimeout(light));
  }

  // Tables that are long get a field: only rows with all of its words are shown, and those that are chosen.
  const FEW_ROWS = 8;
  function narrow(box) {
    const rows = [...box.nextElementSibling.querySelectorAll("tbody tr")];
    const words = box.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
    box.hidden = rows.length < FEW_ROWS && !words.length;
    let left = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) && !row.querySelector(":checked");
      left += !row.hidden;
    }
    box.querySelector("output").textContent = words.length ? `${left} of ${rows.length}` : "";
  }
  document.addEventListener("input", (event) => {
    const box = event.target.closest("[data-rows]");
    if (box) narrow(box);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.closest("[data-rows]")) event.preventDefault(); // it is in a form
  });

  // Small things.
  function ready() {
    document.querySelectorAll("[data-rows]").forEach(narrow);
    light();
    document.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = !navigator.clipboard; });
    drawAll();
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
    button.textContent = "Copied";
  });
  document.addEventListener("submit", (event) => {
    const question = event.submitter && event.submitter.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });
  document.addEventListener("htmx:after:swap", ready);
  ready();

  // The list of jobs is remembered as it was last looked at.
  const section = document.querySelector('[data-section="jobs"]');
  if (section && document.getElementById("filter")) {
    localStorage.setItem(section.pathname, location.search);
  } else if (section) {
    section.search = localStorage.getItem(section.pathname) || "";
  }
})();
