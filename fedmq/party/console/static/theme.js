// Light or dark: as the system has it, or as this person chose here.
"use strict";
(() => {
  const kept = "fedmq-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const read = () => { try { return localStorage.getItem(kept); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem(kept, theme); } catch { /* for this page alone */ } };
  const now = () => root.dataset.theme || (system.matches ? "dark" : "light");

  const chosen = read();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("[data-theme-switch]");
    if (!button) return;
    const say = () => { button.textContent = now() === "dark" ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      root.dataset.theme = now() === "dark" ? "light" : "dark";
      keep(root.dataset.theme);
      say();
      document.dispatchEvent(new CustomEvent("themechange"));
    });
    system.addEventListener("change", () => {
      say();
      document.dispatchEvent(new CustomEvent("themechange"));
    });
    say();
  });
})();
