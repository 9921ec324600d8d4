// Learning curves, drawn by uPlot in the colours of the theme.
"use strict";
(() => {
  const HEIGHT = 190;
  const colour = (name) => {
    const probe = document.createElement("span");
    probe.className = `ink-${name}`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const lines = ["accent", "second", "third", "fourth"];
  const joined = (chart) => uPlot.join(chart.lines.map((line) => [line.at, line.values]));
  const shown = (value) => (value === null || value === undefined ? "–" : value.toPrecision(5));

  const legend = (chart, figure) => {
    const words = chart.lines.map((line, index) => {
      const item = document.createElement("li");
      item.className = `ink-${lines[index % lines.length]}`;
      const values = line.values.filter((value) => value !== null);
      const last = document.createElement("span");
      last.className = "curve-value";
      last.textContent = shown(values.at(-1));
      const name = document.createElement("span");
      name.className = "curve-name";
      name.textContent = line.name;
      item.append(name, last);
      return item;
    });
    figure.querySelector("ul").replaceChildren(...words);
  };

  const draw = (figure, chart) => {
    const width = Math.max(160, figure.clientWidth);
    const grid = { stroke: colour("line"), width: 1 };
    const font = "11px system-ui, sans-serif";
    const axisStyle = { stroke: colour("soft"), grid, ticks: { show: false }, font, gap: 4 };
    const axis = chart.x;
    const values = figure.querySelectorAll(".curve-value");
    const show = (now, at) => chart.lines.forEach((_, index) => {
      const held = now.data[index + 1];
      let place = at ?? held.length - 1;
      while (place > 0 && (held[place] === null || held[place] === undefined)) place -= 1;
      if (values[index]) values[index].textContent = shown(held[place]);
    });
    const bars = chart.kind === "bars" ? uPlot.paths.bars({ size: [0.8, 40] }) : undefined;
    const plot = new uPlot({
      width,
      height: HEIGHT,
      padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: { points: { size: 6 }, y: false, drag: { x: false, y: false } },
      scales: { x: { time: false } },
      axes: [
        { ...axisStyle, size: 28, ...(axis === "tree" ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] } : {}) },
        { ...axisStyle, size: 48, values: (_, splits) => splits.map((at) => Number(at.toPrecision(4))) },
      ],
      series: [
        { label: chart.x },
        ...chart.lines.map((line, index) => ({
          label: line.name,
          stroke: colour(lines[index % lines.length]),
          width: bars ? 0 : 2,
          fill: bars ? colour(lines[index % lines.length]) : undefined,
          paths: bars,
          points: { show: !bars && line.at.length < 3, size: 5 },
          spanGaps: true,
        })),
      ],
      hooks: { setCursor: [(now) => show(now, now.cursor.idx)] },
    }, joined(chart), figure.querySelector(".curve-place"));
    return plot;
  };

  const figureOf = (chart) => {
    const figure = document.createElement("figure");
    figure.className = "curve";
    const caption = document.createElement("figcaption");
    const title = document.createElement("span");
    title.textContent = chart.title;
    caption.append(title, document.createElement("ul"));
    const place = document.createElement("div");
    place.className = "curve-place";
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", `${chart.title} by ${chart.x}`);
    figure.append(caption, place);
    return figure;
  };

  const render = (place) => {
    const charts = JSON.parse(place.dataset.series || "[]").filter((chart) => chart.lines.some((line) => line.at.length));
    const shape = JSON.stringify(charts.map((chart) => [chart.title, chart.lines.map((line) => line.name)]));
    if (place.dataset.shape === shape && place.plots) {
      charts.forEach((chart, index) => {
        place.plots[index].setData(joined(chart));
        legend(chart, place.children[index]);
      });
      return;
    }
    (place.plots || []).forEach((plot) => plot.destroy());
    place.dataset.shape = shape;
    if (!charts.length) {
      const empty = document.createElement("p");
      empty.className = "faint";
      empty.textContent = place.dataset.empty || "No figures yet.";
      place.replaceChildren(empty);
      place.plots = null;
      return;
    }
    const figures = charts.map((chart) => figureOf(chart));
    place.replaceChildren(...figures);
    charts.forEach((chart, index) => legend(chart, figures[index]));
    place.plots = charts.map((chart, index) => draw(figures[index], chart));
  };

  const forget = (place) => { place.dataset.shape = ""; };
  const all = () => document.querySelectorAll("[data-curves]");
  const begin = (place) => {
    if (place.dataset.begun) return;
    place.dataset.begun = "yes";
    place.addEventListener("series", () => render(place));
    render(place);
  };
  const again = () => all().forEach((place) => { forget(place); render(place); });

  all().forEach(begin);
  document.addEventListener("htmx:afterSettle", () => all().forEach(begin));
  document.addEventListener("themechange", again);
  let wide = innerWidth;
  let soon = 0;
  addEventListener("resize", () => {
    if (innerWidth === wide) return;
    wide = innerWidth;
    clearTimeout(soon);
    soon = setTimeout(again, 150);
  });
})();
