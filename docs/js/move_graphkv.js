import * as kv from "./kv.js"
import {
  answer, bar_table, chosen, detail, difference, flag, floats, html, legend, listed, lookout,
  marks, move, quoted, svg, token_columns, two, walks
} from "./interface.js"

const { words, ...walk } = walks.graphkv
const HIGHEST = 0.5 // of the chart
const aside = walk.protected[0]
const scores = floats(walk.scores)
const [keys, values] = [walk.keys, walk.values].map(floats)

/** All that GraphKV computes, in the order of the walk. */
function computed({ keep, count, rounds, strength, spare_sources }) {
  const given = { scores, keys, keep, count, protected: marks(walk.protected), strength, spare_sources }
  // without a round, the score of the layer
  const [layer, refined] = [0, rounds].map((rounds) =>
    kv.nested(kv.graphkv_refine({ ...given, rounds }))[0])
  const P = marks(aside)
  const sources = kv.source_tokens({
    scores: floats(layer), count: kv.source_count({ keep }), protected: P })
  const weights = kv.edges({ keys: kv.concatenate_heads({ vectors: keys }), sources })
  const near = kv.neighbours({ weights, sources, count, protected: P, spare_sources })
  const [kept, plain] = [refined, layer].map((s) =>
    kv.retain({ scores: floats(s), protected: P, keep }).data)
  const bytes = kv.bytes_of(...Object.values(kv.evict({ keys, values, kept: marks([kept, kept]) })))
  const edges = kv.nested(weights)
  return { layer, refined, sources: sources.data, edges, near: kv.nested(near), kept, plain, bytes }
}

// ---- The keys of a head, as rays from the origin: the cosine of two is that of their angle ----

const [X, Y] = [(x) => 180 + 58 * x, (y) => 200 - 62 * y]

function plane(title, head) {
  const tips = words.map((word, i) => {
    const [x, y] = head[i]
    if (!x && !y) return null
    const node = svg("g", {}, svg("line", { class: "ray", x1: X(0), y1: Y(0), x2: X(x), y2: Y(y) }),
      svg("circle", { class: "tip", cx: X(x), cy: Y(y), r: 4 }),
      svg("text", { x: X(x) + (x > 0 ? 7 : -7), y: Y(y) - 3, "text-anchor": x > 0 ? "start" : "end" },
        word))
    node.addEventListener("mouseenter", () => look.pass({ row: 0, i }))
    node.addEventListener("mouseleave", () => look.pass(null))
    return node
  })
  const edges = svg("g")
  const picture = svg("svg", { viewBox: "0 0 420 222", "aria-hidden": "true" },
    svg("line", { class: "axis", x1: X(-2.6), y1: Y(0), x2: X(3.4), y2: Y(0) }),
    svg("line", { class: "axis", x1: X(0), y1: Y(-0.1), x2: X(0), y2: Y(2.95) }),
    svg("text", { x: X(3.4), y: Y(0) + 14, "text-anchor": "end" }, "praise →"),
    svg("text", { x: X(0) - 8, y: Y(2.9), "text-anchor": "end" }, "what is praised ↑"),
    ...tips.filter(Boolean), edges)
  /** Show which are sources and neighbours, and the edges from which the token looked at decays. */
  const show = (at) => {
    tips.forEach((node, i) => node && flag(node, { ...roles(i), looked: i === at }))
    const near = found.sources.filter((_, n) => settings.rounds && tips[at] && found.near[n][at])
    edges.replaceChildren(...near.map((o) => {
      const [[a, b], [c, d]] = [head[o], head[at]]
      return svg("line", { class: "edge", x1: X(a), y1: Y(b), x2: X(c), y2: Y(d) })
    }))
  }
  return { show, root: html("figure", {}, html("figcaption", {}, title), picture) }
}

let settings, found
const look = lookout({ row: 0, i: words.indexOf("like") }, show)
const planes = ["Keys of the first head", "Keys of the second head"].map((title, h) =>
  plane(title, walk.keys[h]))
const columns = token_columns("Scores of the layer", 0, words, look, "GraphKV")
const told = detail()
const outputs = bar_table("What the last query reads of the first head, in parts of the answer",
  ["cache", "praise", "what is praised"], two)

const roles = (i) => ({
  spared: aside[i], source: found.sources.includes(i),
  less: settings.rounds > 0 && found.near.some((N) => N[i]) })

function show() {
  const at = look.at().i
  for (const { show } of planes) show(at)
  columns.show(words.map((_, i) => {
    const { spared, source, less } = roles(i)
    const [kept, plain] = [found.kept[i], found.plain[i]]
    const role = [spared && "protected", source && "source", less && "neighbour"].filter(Boolean)
    return {
      before: spared ? 0 : found.layer[i] / HIGHEST,
      after: source || less ? found.refined[i] / HIGHEST : 0,
      classes: { spared, source, hub: source, less, kept, plain, looked: i === at, inside: i === at },
      state: [...role, kept ? "kept" : "not kept"].join(", "),
    }
  }))
  told.textContent = explained(at)
}

function explained(i) {
  const { spared, source } = roles(i)
  if (spared) return `“${words[i]}” is protected: it is kept whatever its score, and takes no part.`
  const edge = (n) => `“${words[found.sources[n]]}” at a cosine of ${two(found.edges[n][i])}`
  const all = found.sources.map((_, n) => n).filter((n) => found.sources[n] !== i)
  const near = all.filter((n) => found.near[n][i])
  const [before, after] = [found.layer[i], found.refined[i]].map(two)
  const rounds = settings.rounds === 1 ? "1 round" : `${settings.rounds} rounds`
  const parts = [`“${words[i]}” scores ${before}.`]
  if (source) parts.push(`It is a source: one of the ${found.sources.length} best.`)
  if (near.length)
    parts.push(`It is a neighbour of ${listed(near.map(edge))}: a round takes α times that share of ` +
      `its score. ${settings.rounds ? `After ${rounds} it is ${after}` : "Without a round it stays"}.`)
  else if (!source) parts.push(`Nobody's neighbour (${listed(all.map(edge))}), it loses nothing.`)
  return `${parts.join(" ")} It is ${found.kept[i] ? "" : "not "}kept.`
}

move(
  {
    count: { label: "Neighbours m of a source", min: 0, max: 5, value: 2 },
    rounds: { label: "Rounds T", min: 0, max: 4, value: 1 },
    strength: { label: "Strength α", min: 0.1, max: 1, step: 0.1, value: 1, say: two },
    keep: { label: "Budget", min: 3, max: 9, value: 5, say: (x) => `${x} of 14` },
    spare_sources: { label: "No source is another's neighbour", value: false },
  },
  [
    legend(["before", "score of the layer"], ["hub", "source"], ["less", "neighbour: decays"],
      ["spared", "protected"], ["edge", "edge from which the token looked at decays"]),
    html("div", { class: "move-planes" }, ...planes.map(({ root }) => root)),
    columns.root, told, outputs.root,
  ],
  (given) => {
    settings = given
    found = computed(settings)
    show()
    const caches = [["whole", words.map(() => true)], ["Top-K", found.plain], ["GraphKV", found.kept]]
    outputs.show(caches.map(([name, kept]) => ({ name, numbers: answer(walk, kept) })), 1)
    const sources = found.sources.map((o) => words[o])
    const near = chosen(words, words.map((_, i) => roles(i).less))
    return [
      `${sources.length === 1 ? "The source is" : "The sources are"} ${quoted(sources)}; what decays: ` +
        `${near.length ? quoted(near) : "nothing"}.`,
      `Each head keeps ${quoted(chosen(words, found.kept))}: ` +
        `${difference(words, found.kept, found.plain)}. ` +
        `That is ${found.bytes} bytes with their positions, of ${kv.bytes_of(keys, values)} without.`,
    ]
  },
)
