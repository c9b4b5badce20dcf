// Typeset the formulas that arithmatex marked; load KaTeX only on pages with formulas.
const vendor = new URL("../vendor/katex/", document.currentScript.src)

const element = (name, attributes) =>
  new Promise((done) => {
    const made = Object.assign(document.createElement(name), attributes, { onload: done })
    document.head.append(made)
  })

document$.subscribe(async ({ body }) => {
  const formulas = body.querySelectorAll(".arithmatex")
  if (!formulas.length) return
  element("link", { rel: "stylesheet", href: `${vendor}katex.min.css` })
  await element("script", { src: `${vendor}katex.min.js` })
  await element("script", { src: `${vendor}auto-render.min.js` })
  for (const formula of formulas) {
    renderMathInElement(formula, {
      delimiters: [
        { left: "\\[", right: "\\]", display: true },
        { left: "\\(", right: "\\)", display: false },
      ],
    })
  }
})
