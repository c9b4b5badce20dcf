// What the three interactive pages share: settings, columns of tokens, tables with bars. No arithmetic
// of a method stands here or in move_*.js: kv.js has that, which the conformance suite tests.
import { attention, evict, tensor } from "./kv.js"

/** The numbers of the walks, which docs/walk_numbers.py writes. */
export const walks = await (await fetch(new URL("walks.json", import.meta.url))).json()

const lengths = (x) => (Array.isArray(x) ? [x.length, ...lengths(x[0])] : [])
/** Nested lists as a tensor in float32. */
export const floats = (x) => tensor("float32", lengths(x), x)
/** Nested lists as a tensor in half precision. */
export const halves = (x) => tensor("float16", lengths(x), x)
/** Nested lists as a tensor of marks. */
export const marks = (x) => tensor("bool", lengths(x), x)

/** What the second query of a walk reads of the first head, where these tokens are kept. */
export function answer({ queries, keys, values }, kept, causal = true) {
  const first = (x) => floats([x[0]])
  const cache = evict({ keys: first(keys), values: first(values), kept: marks([kept]) })
  const query = floats([[queries[0][1]]])
  return attention({ queries: query, keys: cache.keys, values: cache.values, causal }).data
}

// ---- Elements ----

const made = (space) => (name, attributes = {}, ...inside) => {
  const node = document.createElementNS(space, name)
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(key, "")
    else if (value !== false && value !== null) node.setAttribute(key, value)
  }
  node.append(...inside)
  return node
}
export const html = made("http://www.w3.org/1999/xhtml")
export const svg = made("http://www.w3.org/2000/svg")

/** Give a node some classes, and take others away. */
export const flag = (node, classes) => {
  for (const [name, on] of Object.entries(classes)) node.classList.toggle(name, Boolean(on))
}

// ---- Words ----

export const quoted = (words) => listed(words.map((word) => `“${word}”`))
export const listed = (words) =>
  words.length < 2 ? `${words[0] ?? "none"}` : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`
export const fixed = (digits) => (x) => x.toFixed(digits).replace("-", "−")
export const two = fixed(2)
export const three = fixed(3)
/** The words that are marked. */
export const chosen = (words, mask) => words.filter((_, i) => mask[i])
/** What a method keeps that another does not. */
export function difference(words, kept, plain) {
  const came = words.filter((_, i) => kept[i] && !plain[i])
  const went = words.filter((_, i) => plain[i] && !kept[i])
  if (!came.length && !went.length) return "the same as Top-K"
  const parts = [came.length && `${quoted(came)} in`, went.length && `${quoted(went)} out`]
  return `${parts.filter(Boolean).join(", ")}, against Top-K`
}

// ---- Settings ----

/**
 * A slider with its label and value. `at` turns its position into the setting, `say` that into words.
 */
function slider(name, { label, min, max, step = 1, value, at = Number, say = String }) {
  const id = `move-${name}`
  const input = html("input", { type: "range", id, name, min, max, step, value })
  const output = html("output", { for: id, "aria-live": "off" }) // the slider says it
  const show = () => {
    const said = say(at(input.value))
    output.textContent = said
    input.setAttribute("aria-valuetext", said)
  }
  show()
  return {
    row: html("div", { class: "move-setting" }, html("label", { for: id }, label), output, input),
    value: () => at(input.value),
    position: () => input.value,
    set: (position) => (input.value = position),
    show,
  }
}

/** Whether two positions are one, such as "1.0" and 1, or "true" and true. */
const same = (one, other) => String(one) === String(other) || Number(one) === Number(other)

function checkbox(name, { label, value }) {
  const id = `move-${name}`
  const input = html("input", { type: "checkbox", id, name, checked: value })
  return {
    row: html("div", { class: "move-setting move-check" }, input, html("label", { for: id }, label)),
    value: () => input.checked,
    position: () => String(input.checked),
    set: (on) => (input.checked = on === true || on === "true"),
    show: () => {},
  }
}

/** A list of which one entry is chosen: `options` has the text of each value. */
function choice(name, { label, options, value }) {
  const id = `move-${name}`
  const entries = Object.entries(options).map(([value, text]) => html("option", { value }, text))
  const input = html("select", { id, name }, ...entries)
  return {
    row: html("div", { class: "move-setting move-choice" }, html("label", { for: id }, label), input),
    value: () => input.value,
    position: () => input.value,
    set: (wanted) => (input.value = wanted in options ? wanted : value),
    show: () => {},
  }
}

const control = (name, given) =>
  ("min" in given ? slider : "options" in given ? choice : checkbox)(name, given)

/**
 * Put the settings and `parts` in the place of the static figure. `draw` is called with the values of
 * the settings now and at each change, and returns the sentences that sum the picture up. What the
 * page marks with data-set becomes a button that makes these settings. They stand in the address.
 */
export function move(settings, parts, draw) {
  const controls = Object.entries(settings).map(([name, given]) =>
    [name, control(name, given), given.value])
  const reset = html("button", { type: "reset", class: "md-button move-button" }, "As in the walk")
  const form = html("form", { class: "move-settings", "aria-label": "Settings" },
    ...controls.map(([, control]) => control.row), reset)
  const said = html("div", { class: "move-said", role: "status", "aria-live": "polite" })
  const update = () => {
    for (const [, control] of controls) control.show()
    const values = Object.fromEntries(controls.map(([name, control]) => [name, control.value()]))
    said.replaceChildren(...draw(values).map((sentence) => html("p", {}, sentence)))
    const moved = controls.filter(([, control, start]) => !same(control.position(), start))
    const query = new URLSearchParams(moved.map(([name, control]) => [name, control.position()]))
    history.replaceState(null, "", moved.length ? `?${query}` : location.pathname)
    for (const [button, wanted] of attempts)
      button.setAttribute("aria-pressed", controls.every(([name, control, start]) =>
        same(control.position(), wanted[name] ?? start)))
  }
  const set = (wanted) => {
    for (const [name, control, start] of controls) control.set(wanted[name] ?? start)
    update()
  }
  form.addEventListener("input", update)
  form.addEventListener("submit", (event) => event.preventDefault())
  form.addEventListener("reset", (event) => (event.preventDefault(), set({})))
  const root = document.getElementById("move")
  const still = matchMedia("(prefers-reduced-motion: reduce)")
  const reveal = () => {
    const { top, bottom } = root.getBoundingClientRect()
    if (top < 0 || bottom > innerHeight)
      root.scrollIntoView({ behavior: still.matches ? "auto" : "smooth" })
  }
  const attempts = []
  for (const phrase of document.querySelectorAll("[data-set]")) {
    const button = html("button", { type: "button", class: "move-try" }, ...phrase.childNodes)
    const wanted = Object.fromEntries(new URLSearchParams(phrase.dataset.set))
    button.addEventListener("click", () => {
      set(wanted)
      reveal()
    })
    phrase.replaceChildren(button)
    attempts.push([button, wanted])
  }
  root.replaceChildren(form, said, ...parts)
  root.classList.add("moving")
  set(Object.fromEntries(new URLSearchParams(location.search)))
}

// ---- Tokens ----

/** Which token is looked at: the one the mouse passes, or else the chosen one. */
export function lookout(start, show) {
  let [chosen, passed] = [start, null]
  return {
    at: () => passed ?? chosen,
    choose: (token) => ([chosen, passed] = [token, null]) && show(),
    pass: (token) => ((passed = token), show()),
  }
}

/**
 * A column for each token of a row: what it scored, what is left of that, and whether it is kept.
 * Tokens are radio buttons, so that arrow keys go from one to the next.
 */
export function token_columns(title, row, words, look, method) {
  const columns = words.map((word, i) => {
    const checked = look.at().row === row && look.at().i === i
    const radio = html("input", { type: "radio", name: "move-token", checked })
    const [before, after] = [html("i", { class: "before" }), html("i", { class: "after" })]
    const said = html("span", { class: "word" }, word)
    const label = html("label", { class: "move-token" }, radio,
      html("span", { class: "bars", "aria-hidden": "true" }, before, after),
      said,
      html("span", { class: "stays by-method", "aria-hidden": "true" }),
      html("span", { class: "stays by-rank", "aria-hidden": "true" }))
    radio.addEventListener("change", () => look.choose({ row, i }))
    label.addEventListener("mouseenter", () => look.pass({ row, i }))
    label.addEventListener("mouseleave", () => look.pass(null))
    return { label, radio, before, after, said }
  })
  const names = ["", "", method, "Top-K"].map((text) => html("span", {}, text))
  const root = html("fieldset", { class: "move-tokens" }, html("legend", {}, title),
    html("div", { class: "columns", style: `--columns: ${words.length}` },
      html("div", { class: "names", "aria-hidden": "true" }, ...names),
      ...columns.map(({ label }) => label)))
  /** Show the tokens: heights in shares of the chart, classes, the state in words, another word. */
  const show = (tokens) => {
    for (const [i, { before, after, classes, state, word = words[i] }] of tokens.entries()) {
      const column = columns[i]
      column.said.textContent = word
      column.before.style.setProperty("--share", before)
      column.after.style.setProperty("--share", after)
      column.radio.setAttribute("aria-label", `${word}, ${state}`)
      flag(column.label, classes)
    }
  }
  return { root, show }
}

/** What the colours mean. */
export const legend = (...entries) =>
  html("ul", { class: "move-legend" },
    ...entries.map(([kind, text]) => html("li", {}, html("i", { class: kind }), text)))

/** A sentence or two on what is looked at. */
export const detail = () => html("p", { class: "move-detail", "aria-live": "polite" })

/**
 * A table with a bar in each cell. `show` takes rows of { name, numbers }, the longest number, and
 * other headings.
 */
export function bar_table(caption, headings, say) {
  const [head, body] = [html("tr"), html("tbody")]
  const table = html("table", { class: "move-table" }, html("caption", {}, caption),
    html("thead", {}, head), body)
  const cell = (x, longest) =>
    html("td", {}, html("div", {}, html("span", {}, say(x)),
      html("i", { style: `--share: ${x / longest}` })))
  const show = (rows, longest, titles = headings) => {
    head.replaceChildren(...titles.map((text) => html("th", { scope: "col" }, text)))
    body.replaceChildren(...rows.map(({ name, numbers }) =>
      html("tr", {}, html("th", { scope: "row" }, name), ...numbers.map((x) => cell(x, longest)))))
  }
  return { root: table, show }
}
