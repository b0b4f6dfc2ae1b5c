(() => {
  // what is wider or higher than its box can be scrolled by the keyboard, too
  const reach = () => {
    for (const box of document.querySelectorAll(".scroll, pre")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) { box.tabIndex = 0; }
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    reach();
    document.addEventListener("toggle", reach, { capture: true });
    addEventListener("resize", reach);
    for (const part of document.querySelectorAll("[data-live]")) {
      const source = new EventSource(part.dataset.live);
      source.addEventListener("live", (event) => {
        const busy = part.contains(document.activeElement) || part.contains(getSelection().anchorNode);
        const selecting = busy && !getSelection().isCollapsed;
        const typing = part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
        const focus = part.contains(document.activeElement) ? document.activeElement.closest("a, button, [tabindex]") : null;
        const place = focus && [...part.querySelectorAll("a, button, [tabindex]")].indexOf(focus);
        const link = focus && focus.getAttribute("href");
        if (selecting || typing) { return; }
        const boxes = () => [...part.querySelectorAll("pre, .scroll")];
        const scrolled = boxes().map((box) => [box.scrollTop, box.scrollTop + box.clientHeight >= box.scrollHeight - 4, box.scrollLeft]);
        part.innerHTML = event.data;
        boxes().forEach((box, i) => {
          if (box.matches("pre")) { box.scrollTop = !scrolled[i] || scrolled[i][1] ? box.scrollHeight : scrolled[i][0]; }
          box.scrollLeft = scrolled[i]?.[2] ?? 0;
        });
        reach();
        if (focus) {
          const same = link && part.querySelector(`[href="${CSS.escape(link)}"]`);
          (same || part.querySelectorAll("a, button, [tabindex]")[place])?.focus({ preventScroll: true });
        }
      });
      addEventListener("pagehide", () => source.close());
    }
  });
})();
