import * as kv from "./kv.js"
import {
  answer, bar_table, chosen, detail, difference, floats, legend, listed, lookout, marks, move,
  quoted, token_columns, two, walks
} from "./interface.js"

const HEADS = ["First head", "Second head"]
const HIGHEST = 0.5 // of the chart
/** What the second query of each prompt asks for, a column of the table for each channel of a value. */
const PROMPTS = {
  1: { ...walks.hubkv, asked: ["door and key", "cat"] },
  2: { ...walks.fact, asked: ["four", "seven", "two"] },
}
let prompt = PROMPTS[1]

/** All that HubKV computes, in the order of the walk. */
function computed({ gamma, radius, tau, minimum, maximum, power, ratio }) {
  const [scores, keys, values] = [prompt.scores, prompt.keys, prompt.values].map(floats)
  const aside = marks(prompt.protected)
  const hubs = kv.hub_mask({ scores, radius, protected: aside })
  const discounted = kv.smd({ scores, radius, gamma, protected: aside })
  const selectivity = kv.selectivity({ scores, protected: aside })
  const weights = kv.head_weights({ selectivity, tau, minimum, maximum })
  const calibrated = kv.calibrate({ scores: discounted, weights })
  const how = { protected: aside, radius, gamma, tau, minimum, maximum, power }
  const refined = kv.hubkv_refine({ scores, ratio, ...how })
  const retain = (scores) => kv.retain({ scores, protected: aside, ratio, scope: "layer" })
  const [kept, plain] = [retain(refined), retain(scores)]
  // λ: what the gate makes of 0 and 1
  const lambda = kv.gate({ scores: floats([0]), corrected: floats([1]), ratio, power }).data[0]
  const bytes = kv.bytes_of(...Object.values(kv.evict({ keys, values, kept })))
  const nested = { hubs, discounted, calibrated, refined, kept, plain, weights }
  for (const [name, x] of Object.entries(nested)) nested[name] = kv.nested(x)
  return { ...nested, lambda, bytes, whole: kv.bytes_of(keys, values) }
}

/** The positions of a token's window, and the best of them. */
function seen(row, i, radius) {
  const window = prompt.words.map((_, j) => j).filter((j) => Math.abs(j - i) <= radius)
  const rivals = window.map((j) => (prompt.protected[row][j] ? -Infinity : prompt.scores[row][j]))
  const [best] = kv.ranking({ scores: floats(rivals) }).data
  return { window, best: window[best] }
}

let settings, found
const look = lookout({ row: 0, i: 1 }, show)
const columns = HEADS.map((title, row) => token_columns(title, row, prompt.words, look, "HubKV"))
const told = detail()
const outputs = bar_table("What the second query reads of the first head, in parts of the answer",
  ["cache", ...prompt.asked], two)

function show() {
  const { row, i } = look.at()
  const { window, best } = seen(row, i, settings.radius)
  for (const [h, column] of columns.entries())
    column.show(prompt.words.map((_, j) => state(h, j, h === row && { window, best, i })))
  told.textContent = explained(row, i, window, best)
}

function state(h, j, looked) {
  const [spared, hub, kept] = [prompt.protected[h][j], found.hubs[h][j], found.kept[h][j]]
  const role = spared ? "protected" : hub ? "hub" : "discounted"
  const refined = spared ? 0 : found.refined[h][j]
  const inside = looked && looked.window.includes(j)
  return {
    word: prompt.words[j],
    before: spared ? 0 : prompt.scores[h][j] / HIGHEST,
    after: refined / HIGHEST,
    classes: { spared, hub, less: !spared && !hub, kept, plain: found.plain[h][j], inside,
      best: inside && j === looked.best && !spared, looked: inside && j === looked.i },
    state: `${role}, ${kept ? "kept" : "not kept"}`,
  }
}

function explained(row, i, window, best) {
  const { words, scores } = prompt
  const name = `“${words[i]}”, ${HEADS[row].toLowerCase()}`
  if (prompt.protected[row][i]) return `${name}: protected, and kept whatever its score.`
  const [s, left, calibrated, z] = [scores[row][i], ...["discounted", "calibrated", "refined"].map((step) =>
    found[step][row][i])].map(two)
  const reach = window.length > 1 ? `Its window is ${quoted(window.map((j) => words[j]))}. ` : ""
  const hub = found.hubs[row][i]
    ? `It is the best of them, a hub, and keeps its ${s}.`
    : `The best of them is “${words[best]}” with ${two(scores[row][best])}, so its own ${s} is ` +
      `discounted to ${left}.`
  const weight = `The head's weight ${two(found.weights[row])} makes it ${calibrated}`
  const gate = `the gate, with λ = ${two(found.lambda)}, lets it come from ${s} to ${z}`
  return `${name}. ${reach}${hub} ${weight}; ${gate}. It is ${found.kept[row][i] ? "" : "not "}kept.`
}

move(
  {
    prompt: { label: "Prompt", options: { 1: "that of the walk", 2: "a fact of three words" }, value: 1 },
    gamma: { label: "Discount γ", min: 0.05, max: 0.95, step: 0.05, value: 0.5, say: two },
    radius: { label: "Radius k of a window", min: 0, max: 5, value: 2 },
    tau: { label: "Exponent τ of head weights", min: 0, max: 2, step: 0.5, value: 0.5, say: String },
    minimum: { label: "Lower bound β_min", min: 0.1, max: 1, step: 0.05, value: 0.8, say: two },
    maximum: { label: "Upper bound β_max", min: 1, max: 2, step: 0.05, value: 1.2, say: two },
    power: { label: "Power p of the gate", min: 0.5, max: 8, step: 0.5, value: 2, say: String },
    ratio: { label: "Ratio r removed", min: 0, max: 0.85, step: 0.05, value: 0.75, say: two },
  },
  [
    legend(["before", "score"], ["hub", "hub, times its head's weight"], ["less", "discounted"],
      ["spared", "protected"], ["inside", "window of the token looked at"]),
    ...columns.map(({ root }) => root), told, outputs.root,
  ],
  (given) => {
    settings = given
    prompt = PROMPTS[settings.prompt]
    found = computed(settings)
    show()
    const { words, asked } = prompt
    const caches = [["whole", words.map(() => true)], ["Top-K", found.plain[0]], ["HubKV", found.kept[0]]]
    const rows = caches.map(([name, kept]) => ({ name, numbers: answer(prompt, kept, false) }))
    outputs.show(rows, 1, ["cache", ...asked])
    const left = (kept) => `“${asked.map((word) => (kept[words.indexOf(word)] ? word : "…")).join(" ")}”`
    const fact = `Of the code “${asked.join(" ")}” the first head keeps ${left(found.plain[0])} by Top-K ` +
      `and ${left(found.kept[0])} by HubKV.`
    const count = found.kept.flat().filter(Boolean).length
    const kept = HEADS.map((title, h) =>
      `${title} keeps ${quoted(chosen(words, found.kept[h]))}: ` +
      `${difference(words, found.kept[h], found.plain[h])}.`)
    return [
      ...(prompt === PROMPTS[2] ? [fact] : []),
      `${count} of 32 entries stay: ${found.bytes} bytes with their positions, of ` +
        `${found.whole} without. ` +
        `λ is ${two(found.lambda)}; heads weigh ${listed(found.weights.map(two))}.`,
      ...kept,
    ]
  },
)
