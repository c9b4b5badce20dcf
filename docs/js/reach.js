// What is too wide and scrolls can be reached, and so scrolled, with the keyboard.
document$.subscribe(({ body }) => {
  const watch = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) target.setAttribute("tabindex", "0")
      else target.removeAttribute("tabindex")
    }
  })
  for (const wide of body.querySelectorAll("div.arithmatex, .md-typeset__scrollwrap")) watch.observe(wide)
})
