// The functions of kv.js, and a cache after eviction: an example to test.
import { nested, tensor } from "./kv.js"

export * from "./kv.js"

const range = (n) => Array.from({ length: n }, (_, i) => i)
const product = (lengths) => lengths.reduce((total, n) => total * n, 1)
const sum = (xs) => xs.reduce((total, x) => total + x, 0)

/** The slices of a tensor along its last axes, one for each head. */
function heads(x, rank) {
  const lead = x.shape.length - rank
  return nested({ ...x, shape: [product(x.shape.slice(0, lead)), ...x.shape.slice(lead)] })
}

/** The kept entries in order of positions; one head after another if ragged. */
export function evict({ keys, values, kept }) {
  const lead = kept.shape.slice(0, -1)
  const width = keys.shape.at(-1)
  const places = heads(kept, 1).map((marks) => range(marks.length).filter((i) => marks[i]))
  const counts = places.map((row) => row.length)
  const total = sum(counts)
  const even = counts.every((count) => count === counts[0])
  const shape = even ? [...lead, counts[0] ?? 0] : [total]
  const picked = (x) => {
    const rows = heads(x, 2)
    const left = places.map((row, h) => row.map((i) => rows[h][i]))
    return tensor(x.dtype, [...shape, width], left)
  }
  const positions = tensor("int64", shape, places)
  const left = { keys: picked(keys), values: picked(values), positions }
  if (even) return left
  const offsets = range(counts.length + 1).map((h) => sum(counts.slice(0, h)))
  return { ...left, offsets: tensor("int64", [offsets.length], offsets) }
}

/** Attention of each query over the kept entries of its head, and over newer tokens. */
export function ragged_attention({ queries, cache, keys, values, valid = null, causal = true, scale = null }) {
  const [count, width] = queries.shape.slice(-2)
  const [kv_heads, tokens] = keys.shape.slice(-3)
  const query_heads = queries.shape.at(-3)
  const [held, read] = [cache.keys, cache.values].map((x) => heads(x, 1))
  const [new_keys, new_values] = [keys, values].map((x) => heads(x, 2))
  const real = valid && heads(valid, 1)
  const output = heads(queries, 2).map((of_head, number) => {
    const row = Math.floor(number / query_heads)
    const h = row * kv_heads + Math.floor((number % query_heads) / (query_heads / kv_heads))
    const kept = range(cache.offsets.data[h + 1]).slice(cache.offsets.data[h])
    return of_head.map((query, t) => {
      const at = tokens - count + t
      const seen = range(tokens).filter(
        (j) => !(causal && j > at) && (!real || real[row][j] || (causal && j === at)),
      )
      const near = [...kept.map((i) => held[i]), ...seen.map((j) => new_keys[h][j])]
      const told = [...kept.map((i) => read[i]), ...seen.map((j) => new_values[h][j])]
      return attended(query, near, told, scale ?? 1 / Math.sqrt(width))
    })
  })
  return tensor(queries.dtype, queries.shape, output)
}

/** The output of one query; 0 where it sees nothing. */
function attended(query, keys, values, scale) {
  const logits = keys.map((key) => scale * sum(key.map((k, i) => k * query[i])))
  const top = Math.max(...logits)
  const weights = logits.map((logit) => Math.exp(logit - top))
  const total = sum(weights)
  return query.map((_, i) => (keys.length ? sum(values.map((v, j) => weights[j] * v[i])) / total : 0))
}
