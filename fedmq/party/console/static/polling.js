// A page that nobody looks at asks for nothing, and a button that is about to be pressed stays.
"use strict";
document.addEventListener("htmx:beforeRequest", (event) => {
  const place = event.target;
  const polls = (place.getAttribute("hx-trigger") || "").startsWith("every");
  if (polls && (document.hidden || place.querySelector("details[open]"))) event.preventDefault();
});
