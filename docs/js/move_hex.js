import * as kv from "./kv.js"
import {
  bar_table, chosen, fixed, flag, halves, html, legend, listed, lookout, marks, move, quoted, svg,
  three, two, walks
} from "./interface.js"

// The walk's cache after the prompt: a block of sixteen words is compressed, two words wait.
const [SPAN, PROMPT, WIDTH] = [16, 18, 8]
const words = walks.hex.words.slice(0, PROMPT)
const { expanders } = walks.hex
const part = (x, start, end) => halves(x.map((head) => head.slice(start, end)))
const [Q, K, V] = [walks.hex.queries, walks.hex.keys, walks.hex.values]
const [keys, values] = [K, V].map((x) => part(x, 0, PROMPT))
const mass = kv.attention_mass({ queries: part(Q, 0, SPAN), keys: part(K, 0, SPAN) })
const query = part(Q, PROMPT - 1, PROMPT)
const exact = kv.bytes_of(keys, values)
const SIDES = ["Keys", "Values"]
const none = (dtype, ...shape) => kv.tensor(dtype, shape, [])

/** What is stored of the span, and how far that moves the output of the last query. */
function computed({ bits, expander, heavy, recent }) {
  const span = { keys: part(K, 0, SPAN), values: part(V, 0, SPAN) }
  const static_mask = marks(expanders[expander].mask)
  const dynamic = kv.h2o_mask({ mass, ratio: heavy / SPAN, recent })
  const kept = kv.hex_mask({ expander: static_mask, dynamic, kv_heads: 2 })
  const block = kv.hex_compress({ ...span, expander: static_mask, dynamic, bits })
  const residual = { keys: part(K, SPAN, PROMPT), values: part(V, SPAN, PROMPT) }
  const cache = {
    blocks: [block],
    residual_keys: residual.keys,
    residual_values: residual.values,
    residual_mass: kv.attention_mass({ queries: part(Q, SPAN, PROMPT), keys, span: PROMPT - SPAN }),
    mass: none("float32", 0),
    original_keys: none("float16", 2, 0, WIDTH), original_values: none("float16", 2, 0, WIDTH),
  }
  /** Attention errors, where these entries are kept. */
  const errors = (kept) => {
    const restored = kv.kcvt({ ...span, bits, kept })
    const [k, v] = ["keys", "values"].map((side) => {
      const rest = kv.nested(residual[side])
      return halves(kv.nested(restored[side]).map((head, h) => [...head, ...rest[h]]))
    })
    const moved = { queries: query, keys, values, compressed_keys: k, compressed_values: v }
    return kv.attention_error(moved).data
  }
  return {
    kept: kv.nested(kept), dynamic: dynamic.data, bytes: kv.hex_bytes({ cache }),
    hex: errors(kept), alone: errors(null),
    groups: [span.keys, span.values].map((x, side) => groups(side, x, kept, bits)),
  }
}

/** Groups that share a step: a channel of the keys, a token of the values. Each with its codes. */
function groups(side, x, kept, bits) {
  const rows = [kv.nested(x), kv.nested(kept)].map((heads) =>
    heads[0].map((_, t) => heads.flatMap((head) => head[t]))) // a row for each token
  const [X, aside] = side ? rows : rows.map((rows) => rows[0].map((_, c) => rows.map((row) => row[c])))
  const { codes, steps, minima } = kv.quantise({ x: halves(X), bits, kept: marks(aside) })
  const restored = kv.nested(kv.dequantise({ codes, steps, minima }))
  const each = Array.from({ length: 2 ** bits }, (_, c) => c)
  const all = kv.tensor("uint8", [SPAN, each.length], X.map(() => each))
  const grid = kv.nested(kv.dequantise({ codes: all, steps, minima }))
  return { X, aside, codes: kv.nested(codes), restored, grid, steps: steps.data }
}

// ---- The cache: a row for each word, a column for each channel ----

let settings, found
const look = lookout({ side: 0, i: 0 }, show)

/** A table of entries; its columns, or for values its rows, can be looked at. */
function entries(side) {
  const header = (i, scope, text) => {
    const looked_at = scope === (side ? "row" : "col") && i < SPAN
    if (!looked_at) return html("th", { scope }, text)
    const checked = look.at().side === side && look.at().i === i
    const radio = html("input", { type: "radio", name: "move-group", checked,
      "aria-label": `${SIDES[side]}: ${side ? `“${text}”` : `channel ${text}`}` })
    radio.addEventListener("change", () => look.choose({ side, i }))
    return html("th", { scope }, html("label", {}, radio, html("span", { "aria-hidden": "true" }, text)))
  }
  const cells = words.map(() => Array.from({ length: SPAN }, () => html("td")))
  const channels = Array.from({ length: SPAN }, (_, c) => header(c, "col", String(c + 1)))
  const drawn = (t) => html("td", { class: "mass" }, t < SPAN ? two(mass.data[t]) : "")
  const rows = cells.map((row, t) =>
    html("tr", {}, header(t, "row", words[t]), ...row, ...(side ? [] : [drawn(t)])))
  const heads = ["first head", "second head"].map((text) =>
    html("th", { scope: "colgroup", colspan: SPAN / 2 }, text))
  const table = html("table", { class: "move-entries" },
    html("caption", {}, side ? "Values: a step for each token" : "Keys: a step for each channel"),
    html("thead", {},
      html("tr", {}, html("td"), ...heads, ...(side ? [] : [html("td")])),
      html("tr", {}, html("th", { scope: "col" }, "channel"), ...channels,
        ...(side ? [] : [html("th", { scope: "col" }, "mass")]))),
    html("tbody", {}, ...rows))
  table.addEventListener("mouseover", ({ target }) => {
    const t = cells.findIndex((row) => row.includes(target))
    if (t >= 0 && t < SPAN) look.pass({ side, i: side ? t : cells[t].indexOf(target) })
  })
  table.addEventListener("mouseleave", () => look.pass(null))
  const show = () =>
    cells.forEach((row, t) => row.forEach((cell, c) => {
      const [whole, waits, at] = [found.dynamic[t], t >= SPAN, look.at()]
      const [group, member] = side ? [t, c] : [c, t]
      const kept = !waits && found.groups[side].aside[group][member]
      const looked = !waits && at.side === side && at.i === group
      flag(cell, { waits, whole, kept: kept && !whole, looked })
      const said = waits ? "waits" : whole ? "row kept" : "kept"
      cell.replaceChildren(waits || kept
        ? html("span", { class: "move-hidden" }, said) : String(found.groups[side].codes[group][member]))
    }))
  return { show, root: table }
}

const tables = [0, 1].map(entries)

// ---- The group that is looked at: its numbers on the grid of its codes ----

const drawing = svg("svg", { viewBox: "0 0 420 240", "aria-hidden": "true" })
const title = html("figcaption")
const told = html("p", { class: "move-detail", "aria-live": "polite" })

function draw_group() {
  const { side, i } = look.at()
  const { X, aside, codes, restored, grid, steps } = found.groups[side]
  const numbers = [X, aside, codes, restored, grid].map((x) => x[i])
  const [x, kept, code, coded, levels] = numbers
  const names = side ? x.map((_, c) => `${c + 1}`) : words.slice(0, SPAN)
  const [low, high] = [Math.min(...x, ...coded), Math.max(...x, ...coded)]
  const at = (value) => 195 - (180 * (value - low)) / (high - low || 1)
  const across = (j) => 24 + 24 * j
  const rest = x.map((_, j) => j).filter((j) => !kept[j])
  // each code has a line, and a number where that has room
  const room = Math.ceil((12 * (levels.length - 1)) / (at(levels[0]) - at(levels.at(-1))))
  const off = (j) => ({ x1: across(j), x2: across(j), y1: at(x[j]), y2: at(coded[j]) })
  const lines = rest.length && levels.length <= 32 ? levels : []
  const band = rest.length && !lines.length // too many to be told apart
  drawing.replaceChildren(
    ...(band ? [svg("rect", { class: "band", x: 15, width: 375, y: at(levels.at(-1)),
      height: at(levels[0]) - at(levels.at(-1)) })] : []),
    ...lines.flatMap((level, c) => [
      svg("line", { class: "level", x1: 15, y1: at(level), x2: 390, y2: at(level) }),
      c % room === 0 ? svg("text", { class: "code", x: 396, y: at(level) + 4 }, String(c)) : "",
    ]),
    ...names.map((name, j) => svg("text", { "text-anchor": "end",
      transform: `translate(${across(j) + 4}, 212) rotate(-50)` }, name)),
    ...rest.map((j) => svg("line", { class: "off", ...off(j) })),
    ...x.map((value, j) => svg("circle", { cx: across(j), cy: at(value), r: 4.5,
      class: !kept[j] ? "number" : found.dynamic[side ? i : j] ? "whole" : "kept" })),
    ...rest.map((j) => svg("circle", { class: "restored", cx: across(j), cy: at(coded[j]), r: 3 })))
  const group = side ? `the values of “${words[i]}”` : `channel ${i + 1} of the keys`
  title.textContent = `${group[0].toUpperCase()}${group.slice(1)}, on the grid of its codes`
  const each = rest.map((j) => `${side ? `channel ${names[j]}` : `“${names[j]}”`} ${two(x[j])} as ` +
    `${code[j]}, restored to ${two(coded[j])}`)
  told.textContent = rest.length
    ? `Of ${group}, ${rest.length} of ${SPAN} entries are codes in steps of ${three(steps[i])}: ` +
      `${each.join("; ")}.`
    : `All of ${group} is kept.`
}

function show() {
  for (const { show } of tables) show()
  draw_group()
}

const errors = bar_table(`Attention error of the query of “${words.at(-1)}”`,
  ["cache", "first head", "second head"], three)
const bytes = bar_table("Bytes", ["part", "bytes"], String)
const PARTS = { codes: "codes", scales: "steps and minima", expander: "expander entries",
  tokens: "kept tokens", marks: "marks", residual: "waiting words", mass: "attention mass" }

move(
  {
    bits: { label: "Bits b of a code", min: 1, max: 8, value: 3 },
    expander: { label: "Channels the expander keeps", min: 0, max: expanders.length - 1, value: 1,
      say: (at) => `${expanders[at].degree} of ${SPAN}` },
    heavy: { label: "Heavy hitters", min: 0, max: 4, value: 1, say: (x) => `${x} of ${SPAN}` },
    recent: { label: "Recent window r", min: 0, max: SPAN, value: 1 },
  },
  [
    legend(["hub", "kept by the expander"], ["less", "row kept: heavy hitter or recent"],
      ["spared", "waits for its block"], ["coded", "stored as the code shown"]),
    html("div", { class: "move-planes" }, ...tables.map(({ root }) => root)),
    html("div", { class: "move-planes" },
      html("figure", {}, title, drawing,
        legend(["number", "number"], ["restored", "restored from its code"], ["hub", "kept"])),
      html("div", {}, told, errors.root)),
    bytes.root,
  ],
  (given) => {
    settings = given
    found = computed(settings)
    show()
    errors.show([{ name: "HEX", numbers: found.hex }, { name: "codes alone", numbers: found.alone }],
      Math.max(...found.hex, ...found.alone))
    const { second, bound, degree } = expanders[settings.expander]
    const total = Object.values(found.bytes).reduce((a, b) => a + b)
    const rows = Object.entries(PARTS).map(([key, name]) => ({ name, numbers: [found.bytes[key]] }))
    const whole = { name: "all of it", numbers: [total] }
    bytes.show([...rows, whole, { name: "uncompressed", numbers: [exact] }], Math.max(total, exact))
    const { bits, heavy, recent } = settings
    const config = { ...kv.HEX, bits, density: degree / SPAN, heavy: heavy / SPAN, recent }
    const large = Object.values(kv.hex_size({ config, tokens: 960 })).reduce((a, b) => a + b)
    const graph = degree
      ? `The graph of the ${degree * SPAN} entries that the expander keeps has a second singular value of ` +
        `${three(second)}; the Ramanujan bound of its degree is ${three(bound)}.` +
        (found.dynamic.some(Boolean) ? " With whole rows there is no common degree, and no bound." : "") : ""
    const entries = found.kept.flat(2)
    return [
      `${entries.filter(Boolean).length} of ${entries.length} entries of the span are kept, ` +
        `whole rows of ${quoted(chosen(words, found.dynamic))} among them. ${graph}`,
      `The error is ${listed(found.hex.map(three))} in the two heads; codes alone give ` +
        `${listed(found.alone.map(three))}.`,
      `${total} of ${exact} bytes. At 960 tokens of 1024 channels in half precision, the same ` +
        `settings take ${fixed(0)((100 * large) / (2 * 2 * 1024 * 960))} %.`,
    ]
  },
)
