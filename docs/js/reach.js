// Boxes that scroll sideways can be focused with the keyboard, and show on which sides they go on.
const wide = "div.arithmatex, pre > code, .md-typeset__scrollwrap"

const mark = (box) => {
  const left = box.scrollWidth - box.clientWidth
  if (left <= 0) {
    box.removeAttribute("tabindex")
    delete box.dataset.scrolls
    return
  }
  box.setAttribute("tabindex", "0")
  const sides = [box.scrollLeft > 0.5 && "before", box.scrollLeft < left - 0.5 && "after"]
  box.dataset.scrolls = sides.filter(Boolean).join(" ")
}

document$.subscribe(({ body }) => {
  body.querySelector("[role=dialog]")?.setAttribute("aria-label", "Search")
  const watch = new ResizeObserver((entries) => entries.forEach(({ target }) => mark(target)))
  for (const box of body.querySelectorAll(wide)) {
    watch.observe(box)
    box.addEventListener("scroll", () => mark(box), { passive: true })
  }
})
