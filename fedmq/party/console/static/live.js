// Fills parts of the page as they change, while somebody looks at it.
"use strict";
(() => {
  const root = document.querySelector("[data-live]");
  if (!root) return;
  const said = document.querySelector("[data-live-state]");
  const say = (words) => { if (said && said.textContent !== words) said.textContent = words; };
  let source = null;
  let again = 0;

  const fill = (name, text) => {
    if (name.startsWith("data:")) {
      const place = document.getElementById(name.slice(5));
      if (!place || place.dataset.series === text) return;
      place.dataset.series = text;
      if (place === root) reload();
      else place.dispatchEvent(new CustomEvent("series"));
      return;
    }
    const place = document.getElementById(name);
    if (place) place.innerHTML = text;
  };

  // A session began, ended or rests: the list is made anew, with its buttons.
  const reload = () => {
    if (root.querySelector("details[open]")) { setTimeout(reload, 1000); return; }
    htmx.ajax("GET", root.dataset.list, { target: root, swap: "innerHTML" });
  };

  const close = () => {
    if (source) source.close();
    source = null;
    clearTimeout(again);
  };
  const open = () => {
    close();
    source = new EventSource(root.dataset.live);
    source.addEventListener("parts", (event) => {
      say("");
      for (const [name, text] of Object.entries(JSON.parse(event.data))) fill(name, text);
    });
    source.addEventListener("error", () => {
      say("The daemon does not answer now.");
      if (source && source.readyState === EventSource.CLOSED) again = setTimeout(open, 5000);
    });
  };

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  open();
})();
