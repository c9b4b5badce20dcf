// Functions of HubKV, GraphKV and HEX in plain JavaScript, for a browser and for Node.
//
// A function has the name and the arguments that its page states, and takes them as one object:
//
//   const scores = tensor("float32", [7], [1, 3, 2, 2, 5, 5, 1])
//   hub_mask({ scores, radius: 1 }).data  // [false, true, false, false, true, false, false]
//
// A tensor is { shape, dtype, data }: `data` is a flat array of numbers or booleans in row order.
// All is computed in doubles, and rounded to the dtype of the result once, where `tensor` makes it;
// only the quotient of a code is rounded before that, so that a tie of float32 is a tie here.
// A function begins with what its arguments may be, and throws a `Refusal` otherwise.

// ---- Tensors ----

const float = (digits, least, most) => (x) => {
  const unit = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(x))), least) - digits)
  const near = Number.isFinite(x) ? round_half_even(x / unit) * unit : x
  return Math.abs(near) > most ? Math.sign(near) * Infinity : near
}
const ROUND = {
  float64: (x) => x,
  float32: Math.fround,
  float16: float(10, -14, 65504),
  bfloat16: float(7, -126, (2 - 2 ** -7) * 2 ** 127),
}
const FLOATS = Object.keys(ROUND)
const BYTES = { float64: 8, float32: 4, float16: 2, bfloat16: 2, int64: 8, int32: 4, uint8: 1, bool: 1 }

/** A tensor of values, nested in any way, rounded to its dtype. */
export function tensor(dtype, shape, values) {
  return { shape, dtype, data: [values].flat(Infinity).map(ROUND[dtype] ?? ((x) => x)) }
}

/** The values of a tensor as nested lists, one for each axis. */
export function nested({ shape, data }) {
  if (!shape.length) return data[0]
  const [length, ...inner] = shape
  const size = product(inner)
  return range(length).map((i) =>
    inner.length ? nested({ shape: inner, data: data.slice(i * size, (i + 1) * size) }) : data[i],
  )
}

/** The slices of a tensor along its last `rank` axes, as nested lists; no slices if x is null. */
function slices(x, rank) {
  if (!x) return []
  const lead = x.shape.length - rank
  const shape = [product(x.shape.slice(0, lead)), ...x.shape.slice(lead)]
  return nested({ shape, data: x.data })
}

/** A tensor with its last two axes exchanged. */
function transposed(x) {
  const [rows, columns] = x.shape.slice(-2)
  const data = slices(x, 2).map((matrix) => range(columns).map((j) => matrix.map((row) => row[j])))
  return { ...x, shape: [...x.shape.slice(0, -2), columns, rows], data: data.flat(2) }
}

/** How many bytes the elements of tensors take. */
export const bytes_of = (...tensors) => sum(tensors.map(({ dtype, data }) => BYTES[dtype] * data.length))

const zip = (first, ...others) => first.map((x, i) => [x, ...others.map((other) => other[i])])
const rows = (...tensors) => zip(...tensors.map((x) => slices(x, 1)))
const graphs = (scores, ...others) => zip(slices(scores, 1), ...others.map((x) => slices(x, 2)))

/** The dtype of statistics and mixtures: float64 if a tensor has it, else float32. */
const wide = (...tensors) =>
  tensors.some((x) => x?.dtype === "float64") ? "float64" : "float32"

// ---- Numbers ----

const range = (n) => Array.from({ length: n }, (_, i) => i)
const sum = (xs) => xs.reduce((total, x) => total + x, 0)
const mean = (xs) => sum(xs) / xs.length
const product = (xs) => xs.reduce((total, x) => total * x, 1)
const least = (xs, start = Infinity) => xs.reduce((a, b) => Math.min(a, b), start)
const most = (xs, start = -Infinity) => xs.reduce((a, b) => Math.max(a, b), start)
const argmax = (xs) => xs.indexOf(most(xs))
const count_true = (xs) => xs.filter(Boolean).length
const dot = (a, b) => sum(a.map((x, i) => x * b[i]))
const norm = (a) => Math.sqrt(dot(a, a))
const clamp = (x, low, high) => Math.min(Math.max(x, low), high)
/** The power as in mathematics: 1 to the power of infinity is 1, not NaN. */
const power = (base, exponent) => (base === 1 ? 1 : base ** exponent)

function round_half_even(x) {
  const up = Math.round(x) // rounds a half up
  return up - x === 0.5 && up % 2 ? up - 1 : up
}

function softmax(logits) {
  const top = most(logits)
  const powers = logits.map((x) => Math.exp(x - top))
  const total = sum(powers)
  return powers.map((x) => x / total)
}

/** The positions from the highest score to the lowest; of equal scores the lowest comes first. */
const best_first = (s) => range(s.length).sort((i, j) => s[j] - s[i] || i - j)

/** ⌊share · n⌋, or with `rest` ⌊(1 − share) · n⌋, of the share's decimal digits, exactly. */
function floor_share(share, n, rest = false) {
  const [digits, exponent = "0"] = String(share).split("e")
  const [whole, part = ""] = digits.split(".")
  const scale = 10n ** BigInt(part.length - Number(exponent))
  const top = BigInt(whole + part)
  return Number(((rest ? scale - top : top) * BigInt(n)) / scale)
}

// ---- Checks of arguments ----

/** A bad argument: `kind` is "type" or "value". */
export class Refusal extends Error {
  constructor(kind, message) {
    super(message)
    this.kind = kind
  }
}

/** Throw a refusal unless something holds. */
function must(holds, message, kind = "value") {
  if (!holds) throw new Refusal(kind, message)
}

const shown = (x) => (is_tensor(x) ? `a ${x.dtype} tensor` : JSON.stringify(x))
const is_tensor = (x) => Array.isArray(x?.shape) && Array.isArray(x.data)

const number = (said, holds) => (name, x) => {
  must(typeof x === "number", `${name} must be a number, got ${shown(x)}`, "type")
  must(holds(x), `${name} must be ${said}, got ${x}`)
}
const integer = (said, holds) => (name, x) => {
  must(Number.isInteger(x), `${name} must be an integer, got ${shown(x)}`, "type")
  must(holds(x), `${name} must be ${said}, got ${x}`)
}
const Flag = (name, x) =>
  must(typeof x === "boolean", `${name} must be true or false, got ${shown(x)}`, "type")
const one_of = (...choices) => (name, x) =>
  must(choices.includes(x), `${name} must be one of ${choices}, got ${shown(x)}`)

const Whole = integer(">= 0", (x) => x >= 0)
const Positive = integer(">= 1", (x) => x >= 1)
const Seed = integer("in [0, 4294967295]", (x) => 0 <= x && x < 2 ** 32)
const Bits = integer("in [1, 8]", (x) => 1 <= x && x <= 8)
const AnyNumber = number("a number", () => true)
const Ratio = number("in [0, 1]", (x) => 0 <= x && x <= 1)
const OpenFraction = number("in (0, 1)", (x) => 0 < x && x < 1)
const Share = number("in (0, 1]", (x) => 0 < x && x <= 1)
const NonNegative = number(">= 0", (x) => x >= 0)
const Above0 = number("> 0", (x) => x > 0)
const FiniteAbove0 = number("finite and > 0", (x) => 0 < x && x < Infinity)
const FiniteNonNegative = number("finite and >= 0", (x) => 0 <= x && x < Infinity)
const Scope = one_of("head", "layer", "model")
const Kind = one_of("kk", "qk", "qq", "kv", "vv")
const Rule = one_of("product", "sequential", "sum")
const Signal = one_of("decay", "enhance", "evict")
const Scales = one_of("float16", "float32")
const ValueGroup = one_of("token", "head")
const Mode = one_of("append", "full", "oracle")
const CacheType = one_of(...FLOATS)

/** A tensor of some dtypes and values; axes of one name have one length throughout a call. */
const tensors = (word, dtypes, said, holds) => (axes) => (name, x, lengths) => {
  const fits = is_tensor(x) && dtypes.includes(x.dtype)
  must(fits, `${name} must be ${word} tensor, got ${shown(x)}`, "type")
  const names = axes.split(" ")
  const starred = axes[0] === "*" ? [names.shift()] : []
  const lead = x.shape.length - names.length
  must(starred.length ? lead >= 0 : lead === 0, `${name} must have axes ${axes}, got ${x.shape}`)
  for (const star of starred) names.unshift(star)
  const found = [...starred.map(() => `${x.shape.slice(0, lead)}`), ...x.shape.slice(lead)]
  names.forEach((axis, i) => {
    lengths[axis] ??= found[i]
    const same = lengths[axis] === found[i]
    must(same, `${name} must have ${axis} of [${lengths[axis]}], got shape [${x.shape}]`)
  })
  const bad = x.data.find((value) => !holds(value))
  must(bad === undefined, `${name} must be ${said}, got ${bad}`)
}
const floats = (said, holds) => tensors("a floating-point", FLOATS, said, holds)
const Float = floats("numbers", () => true)
const Finite = floats("finite", Number.isFinite)
const Importance = floats("finite and >= 0", (x) => 0 <= x && x < Infinity)
const Orderable = floats("< inf and not NaN", (x) => x < Infinity)
const Bool = tensors("a boolean", ["bool"], "true or false", () => true)
const Int64 = tensors("an int64", ["int64"], "integers", () => true)
const Int32 = tensors("an int32", ["int32"], "integers", () => true)
const UInt8 = tensors("a uint8", ["uint8"], "integers", () => true)

/** Settings or a result with named fields, each of which may be what `fields` says. */
const record = (fields) => (name, x) => {
  must(x !== null && typeof x === "object", `${name} must have fields, got ${shown(x)}`, "type")
  for (const [field, kind] of Object.entries(fields)) {
    must(field in x, `${name} must have ${field}`, "type")
    kind(`${name}.${field}`, x[field], {})
  }
}
const nullable = (kind) => (name, x, lengths) => x === null || kind(name, x, lengths)
const several = (kind) => (name, x) => {
  must(Array.isArray(x), `${name} must be a list, got ${shown(x)}`, "type")
  x.forEach((part, i) => kind(`${name}[${i}]`, part, {}))
}

/** An integer, or a tensor of integers. */
const Budget = (name, x, lengths) =>
  (is_tensor(x) ? Int64("*pools") : integer("", () => true))(name, x, lengths)

/**
 * A function that checks its arguments by `signature`: a check for each, in a list with its default
 * if it has one. An argument may be null only if its default is null.
 */
function define(signature, body) {
  const defaults = {}
  const kinds = {}
  for (const [name, entry] of Object.entries(signature))
    [kinds[name], defaults[name]] = Array.isArray(entry) ? entry : [entry, undefined]
  const call = (given) => {
    const lengths = {}
    const inputs = { ...defaults, ...given }
    for (const [name, x] of Object.entries(inputs)) {
      must(name in kinds, `there is no argument ${name}`, "type")
      must(x !== undefined, `${name} must be given`, "type")
      if (x !== null || defaults[name] !== null) kinds[name](name, x, lengths)
    }
    return body(inputs)
  }
  return Object.assign(call, { signature })
}

const at_most = (name, x, highest) =>
  must(0 <= x && x <= highest, `${name} must be in [0, ${highest}], got ${x}`)

const bounded = (minimum, maximum) =>
  must(maximum >= minimum, `maximum must be >= minimum, which is ${minimum}, got ${maximum}`)

function finite_result(name, result) {
  const said = `${name} must be in the range where results are finite in ${result.dtype}`
  must(result.data.every(Number.isFinite), `${said}, got a result out of range`)
  return result
}

// ---- HubKV ----

/**
 * Mark each token that holds the maximum of its window; on a plateau the lowest index does.
 *
 *   M_i = 𝕀(i = argmax_{j ∈ W_i} s_j),  W_i = [i − k, i + k]
 *
 * scores: importance s. radius: half-width k. protected: true at tokens that take no part.
 */
export const hub_mask = define(
  {
    scores: Finite("*heads tokens"),
    radius: [Whole, 2],
    protected: [Bool("*heads tokens"), null],
  },
  ({ scores, radius: k, protected: aside }) =>
    tensor("bool", scores.shape, rows(scores, aside).map(([s, P]) => {
      const rivals = P ? s.map((x, i) => (P[i] ? -Infinity : x)) : s
      return s.map((_, i) => {
        const start = Math.max(0, i - k)
        return !P?.[i] && i === start + argmax(rivals.slice(start, i + k + 1))
      })
    })),
)

/**
 * Discount every token that is not a hub.
 *
 *   s̃_i = M_i s_i + (1 − M_i) γ s_i
 *
 * scores: importance s. hubs: the mask M of `hub_mask`. gamma: discount factor γ.
 */
export const discount = define(
  {
    scores: Importance("*heads tokens"),
    hubs: Bool("*heads tokens"),
    gamma: [OpenFraction, 0.5],
  },
  ({ scores, hubs, gamma }) =>
    tensor(scores.dtype, scores.shape, scores.data.map((s, i) => (hubs.data[i] ? s : gamma * s))),
)

/**
 * Find the hubs, discount the rest; protected tokens keep their score.
 *
 *   s̃_i = s_i where i = argmax_{j ∈ W_i} s_j, else γ s_i
 */
export const smd = define(
  {
    scores: Importance("*heads tokens"),
    radius: [Whole, 2],
    gamma: [OpenFraction, 0.5],
    protected: [Bool("*heads tokens"), null],
  },
  ({ scores, radius, gamma, protected: aside }) => {
    const hubs = hub_mask({ scores, radius, protected: aside })
    const kept = { ...hubs, data: hubs.data.map((hub, i) => hub || !!aside?.data[i]) }
    return discount({ scores, hubs: kept, gamma })
  },
)

/**
 * How unevenly each head spreads its scores: the coefficient of variation of content tokens.
 *
 *   c = σ / (μ + ε)
 *
 * scores: importance s. protected: true at tokens that μ and σ leave out. epsilon: ε.
 */
export const selectivity = define(
  {
    scores: Importance("*heads tokens"),
    protected: [Bool("*heads tokens"), null],
    epsilon: [NonNegative, 1e-6],
  },
  ({ scores, protected: aside, epsilon }) => {
    const variation = rows(scores, aside).map(([s, P]) => {
      const content = s.filter((_, i) => !P?.[i])
      if (!content.some((x) => x > 0)) return 0
      // deviations from the least score: from a rounded mean, equal scores would deviate
      const raised = content.map((x) => x - least(content))
      const center = mean(raised)
      const sigma = Math.sqrt(mean(raised.map((x) => (x - center) ** 2)))
      return sigma / (mean(content) + epsilon)
    })
    return finite_result("scores", tensor(wide(scores), scores.shape.slice(0, -1), variation))
  },
)

/**
 * Weigh the heads of a layer by their selectivity, within bounds.
 *
 *   β_h = clip((c_h / c̄)^τ, β_min, β_max)
 *
 * selectivity: c. tau: τ. minimum, maximum: the bounds. Where c̄ is 0, the quotient is 1.
 */
export const head_weights = define(
  {
    selectivity: Importance("*layers heads"),
    tau: [FiniteNonNegative, 0.5],
    minimum: [FiniteAbove0, 0.8],
    maximum: [AnyNumber, 1.2],
  },
  ({ selectivity: all, tau, minimum, maximum }) => {
    bounded(minimum, maximum)
    return tensor(wide(all), all.shape, slices(all, 1).map((c) => {
      const average = mean(c)
      const share = c.map((x) => (average > 0 ? x / average : 1))
      return share.map((x) => clamp(power(x, tau), minimum, maximum))
    }))
  },
)

/**
 * Multiply every score of a head by the head's weight.
 *
 *   u_{h,i} = β_h s̃_{h,i}
 */
export const calibrate = define(
  { scores: Importance("*heads tokens"), weights: Importance("*heads") },
  ({ scores, weights }) =>
    tensor(scores.dtype, scores.shape,
      zip(slices(scores, 1), weights.data).map(([s, beta]) => s.map((x) => beta * x))),
)

/**
 * Mix raw and corrected scores by the compression ratio.
 *
 *   λ = r^p,  z_i = (1 − λ) s_i + λ u_i
 *
 * scores: s. corrected: u. ratio: share r of the entries that will be removed. power: p.
 */
export const gate = define(
  {
    scores: Finite("*heads tokens"),
    corrected: Finite("*heads tokens"),
    ratio: Ratio,
    power: [Above0, 2],
  },
  ({ scores, corrected, ratio, power: p }) => {
    const lambda = power(ratio, p)
    const mixed = zip(scores.data, corrected.data).map(([s, u]) => (1 - lambda) * s + lambda * u)
    return tensor(scores.dtype, scores.shape, mixed)
  },
)

/**
 * Mark the tokens that are kept whatever their score: the first few and the latest.
 *
 *   P_i = 𝕀[i ∈ sinks ∪ recent]
 *
 * tokens: length T. sinks: how many at the start. recent: how many at the end, ⌊0.02 T⌋ by default.
 */
export const protected_mask = define(
  { tokens: Whole, sinks: [Whole, 4], recent: [Whole, null] },
  ({ tokens, sinks, recent }) => {
    const last = recent ?? Math.floor(tokens / 50)
    return tensor("bool", [tokens], range(tokens).map((i) => i < sinks || i >= tokens - last))
  },
)

/**
 * Refine scores by all steps of HubKV in order. The heads of a layer are the last axis but one.
 * `ratio` is the share that will be removed.
 *
 *   z = 1 at protected tokens, else (1 − λ) s + λ β s̃
 */
export const hubkv_refine = define(
  {
    scores: Importance("*layers heads tokens"),
    ratio: Ratio,
    protected: [Bool("*layers heads tokens"), null],
    radius: [Whole, 2],
    gamma: [OpenFraction, 0.5],
    tau: [FiniteNonNegative, 0.5],
    minimum: [FiniteAbove0, 0.8],
    maximum: [AnyNumber, 1.2],
    power: [Above0, 2],
    epsilon: [NonNegative, 1e-6],
  },
  (settings) => {
    const { scores: raw, ratio, protected: aside, radius, gamma } = settings
    const { tau, minimum, maximum, power, epsilon } = settings
    bounded(minimum, maximum)
    const shield = (x, value) => x.data.map((s, i) => (aside?.data[i] ? value : s))
    const scores = tensor(wide(raw), raw.shape, shield(raw, 0))
    const discounted = smd({ scores, radius, gamma, protected: aside })
    const c = selectivity({ scores, protected: aside, epsilon })
    const weights = head_weights({ selectivity: c, tau, minimum, maximum })
    const corrected = calibrate({ scores: discounted, weights })
    const refined = gate({ scores, corrected, ratio, power })
    return finite_result("scores", tensor(raw.dtype, raw.shape, shield(refined, 1)))
  },
)

/**
 * How many of `pool` entries are kept when the share `ratio` is removed.
 *
 *   B = ⌊(1 − r) N⌋
 */
export const kept_count = define({ pool: Whole, ratio: Ratio }, ({ pool, ratio }) =>
  floor_share(ratio, pool, true),
)

/**
 * The positions of each head from the best score to the worst.
 *
 *   i ≺ j ⇔ s_i > s_j ∨ (s_i = s_j ∧ i < j)
 */
export const ranking = define({ scores: Orderable("*heads tokens") }, ({ scores }) =>
  tensor("int64", scores.shape, slices(scores, 1).map(best_first)),
)

/**
 * Keep exactly the budget of each pool: the protected entries, then the best of the rest.
 *
 *   S* = argmax_{S ⊇ P, |S| = B} Σ_{i ∈ S} s_i
 *
 * scores: s, laid out [layers, ..., heads, tokens]. protected: P. keep: budget B of every pool, or
 * a tensor of one for each. ratio: removed share, instead of keep. scope: the entries that compete,
 * of a head, of a layer, or of a model (each batch row on its own).
 */
export const retain = define(
  {
    scores: Orderable("*heads tokens"),
    protected: [Bool("*heads tokens"), null],
    keep: [Budget, null],
    ratio: [Ratio, null],
    scope: [Scope, "head"],
  },
  ({ scores: { shape, data: s }, protected: aside, keep, ratio, scope }) => {
    const axes = { head: 1, layer: 2, model: 3 }[scope]
    must(shape.length >= axes, `scores must have at least ${axes} axes, got shape [${shape}]`)
    must((keep === null) !== (ratio === null), "exactly one of keep and ratio must be given")
    const end = shape.length - Math.min(axes, 2)
    const lead = shape.slice(scope === "model" ? 1 : 0, end) // an axis for each pool
    const [size, pools] = [product(shape.slice(end)), product(lead)]
    const N = scope === "model" ? shape[0] * size : size
    if (is_tensor(keep)) must(`${keep.shape}` === `${lead}`, `keep must have shape [${lead}]`)
    const budgets = is_tensor(keep)
      ? keep.data
      : range(pools).map(() => keep ?? kept_count({ pool: N, ratio }))
    if (keep !== null) for (const B of is_tensor(keep) ? keep.data : [keep]) at_most("keep", B, N)

    const members = range(pools).map(() => []) // in order of (layer, head, position)
    s.forEach((_, i) => members[Math.floor(i / size) % pools].push(i))
    const P = (i) => Boolean(aside?.data[i])
    const kept = s.map(() => false)
    for (const [pool, B] of zip(members, budgets)) {
      const shielded = pool.filter(P).length
      const [name, given] = keep === null ? ["ratio", ratio] : ["keep", B]
      must(B >= shielded, `${name} must leave the ${shielded} protected entries, got ${given}`)
      pool.sort((i, j) => P(j) - P(i) || s[j] - s[i] || i - j)
      for (const i of pool.slice(0, B)) kept[i] = true
    }
    return tensor("bool", shape, kept)
  },
)

/**
 * Copy the kept entries out of a cache, so that the rest can be freed.
 *
 *   K_s = (k_i)_{i ∈ S},  V_s = (v_i)_{i ∈ S}
 *
 * keys, values: K and V. kept: the set S of each head. Entries are in the order of positions; where
 * heads keep different numbers, one head's stand after another's, from offsets[h] to offsets[h + 1].
 */
export const evict = define(
  {
    keys: Float("*heads tokens width"),
    values: Float("*heads tokens width"),
    kept: Bool("*heads tokens"),
  },
  ({ keys, values, kept }) => {
    const stays = slices(kept, 1).map((S) => range(S.length).filter((i) => S[i]))
    const counts = stays.map((positions) => positions.length)
    const alike = counts.every((count) => count === counts[0])
    const lead = alike ? [...kept.shape.slice(0, -1), counts[0] ?? 0] : [sum(counts)]
    const copied = (x) => {
      const entries = zip(slices(x, 2), stays).map(([head, positions]) =>
        positions.map((i) => head[i]))
      return tensor(x.dtype, [...lead, x.shape.at(-1)], entries)
    }
    const positions = tensor("int64", lead, stays)
    const cache = { keys: copied(keys), values: copied(values), positions }
    if (alike) return cache
    const starts = [0, ...counts.map((_, h) => sum(counts.slice(0, h + 1)))]
    return { ...cache, offsets: tensor("int64", [starts.length], starts) }
  },
)

// ---- GraphKV ----

/**
 * How many tokens of a cache budget act as sources.
 *
 *   k = max(1, ⌊f · (k_l − w)⌋)
 *
 * keep: budget k_l. fraction: share f. window: tokens w that a protected window takes.
 */
export const source_count = define(
  { keep: Whole, fraction: [Share, 0.3], window: [Whole, 0] },
  ({ keep, fraction, window }) => {
    at_most("window", window, keep)
    return Math.max(1, floor_share(fraction, keep - window))
  },
)

/**
 * The positions of the tokens with the highest scores, best first.
 *
 *   O_source = {o_i | s_i ranks in top-k}
 *
 * scores: s. count: k. protected: true at tokens that cannot be sources.
 */
export const source_tokens = define(
  {
    scores: Finite("*heads tokens"),
    count: Whole,
    protected: [Bool("*heads tokens"), null],
  },
  ({ scores, count, protected: aside }) => {
    const tokens = scores.shape.at(-1)
    const content = slices(aside, 1).map((P) => tokens - count_true(P))
    at_most("count", count, least(content, tokens))
    const best = rows(scores, aside).map(([s, P]) =>
      best_first(s.map((x, i) => (P?.[i] ? -Infinity : x))).slice(0, count))
    return tensor("int64", [...scores.shape.slice(0, -1), count], best)
  },
)

/**
 * Cosine similarity of each source to each token.
 *
 *   e_ij = ⟨k_i, k_j⟩ / (‖k_i‖ ‖k_j‖)
 *
 * keys: k. sources: positions i. kind: which vectors are compared, the source's then the token's
 * ("qk": its query against their keys). queries: for "qk" and "qq"; those of one head of keys are
 * averaged. values: for "kv" and "vv". clamp: replace negative similarities by 0.
 */
export const edges = define(
  {
    keys: Finite("*heads tokens width"),
    sources: Int64("*heads sources"),
    kind: [Kind, "kk"],
    queries: [Finite("*query_heads tokens width"), null],
    values: [Finite("*heads tokens width"), null],
    clamp: [Flag, false],
  },
  ({ keys, sources, kind, queries, values, clamp: positive }) => {
    const tokens = keys.shape.at(-2)
    for (const i of sources.data) at_most("sources", i, tokens - 1)
    const vectors = comparable(kind, keys, queries, values)
    const [start, end] = [vectors[kind[0]], vectors[kind[1]]]
    const cosine = (a, b) => {
      const lengths = norm(a) * norm(b)
      return lengths > 0 ? clamp(dot(a, b) / lengths, -1, 1) : 0
    }
    const weights = graphs(sources, start, end).map(([chosen, a, b]) =>
      chosen.map((i) => b.map((k_j) => cosine(a[i], k_j))))
    const e = finite_result("keys", tensor(wide(start, end), [...sources.shape, tokens], weights))
    return positive ? { ...e, data: e.data.map((x) => Math.max(x, 0)) } : e
  },
)

/** The vectors that a kind of edges compares, by their letter. */
function comparable(kind, keys, queries, values) {
  for (const [name, vectors] of Object.entries({ queries, values }))
    must(vectors || !kind.includes(name[0]), `${name} must be given where kind is ${kind}`)
  return { k: keys, q: queries && group_mean(queries, keys), v: values }
}

/** The mean of the queries that share a head of `keys`. */
function group_mean(queries, keys) {
  if (`${queries.shape}` === `${keys.shape}`) return queries
  const but_heads = ({ shape }) => `${[...shape.slice(0, -3), "heads", ...shape.slice(-2)]}`
  const fits = keys.shape.length > 2 && but_heads(queries) === but_heads(keys)
  must(fits, `queries must have shape [${keys.shape}] but for the heads, got [${queries.shape}]`)
  const [heads, kv_heads] = [queries.shape.at(-3), keys.shape.at(-3)]
  must(heads >= 1 && heads % kv_heads === 0,
    `the heads of queries must be a multiple of the ${kv_heads} of keys, at least 1, got ${heads}`)
  const group = heads / kv_heads
  const means = slices(queries, 3).map((Q) =>
    range(kv_heads).map((h) =>
      Q[0].map((rows, t) =>
        rows.map((_, c) => mean(range(group).map((g) => Q[h * group + g][t][c]))))))
  return tensor(wide(queries), keys.shape, means)
}

/**
 * How many neighbours each source reaches, adapted to the length of the input.
 *
 *   m = min(m_0, L),  L = ⌊n / 1000⌋
 */
export const neighbour_count = define(
  { predefined: Whole, length: Whole },
  ({ predefined, length }) => Math.min(predefined, Math.floor(length / 1000)),
)

/**
 * Mark, for each source, the tokens at its strongest edges.
 *
 *   N(o_i) = {o_j | e_ij ≥ e_i(m), j ≠ i}
 *
 * weights: edges e. sources: positions i. count: m. protected: true at tokens that cannot be neighbours.
 * spare_sources: no source is a neighbour of another.
 */
export const neighbours = define(
  {
    weights: Finite("*heads sources tokens"),
    sources: Int64("*heads sources"),
    count: Whole,
    protected: [Bool("*heads tokens"), null],
    spare_sources: [Flag, false],
  },
  ({ weights, sources, count, protected: aside, spare_sources }) => {
    for (const i of sources.data) at_most("sources", i, weights.shape.at(-1) - 1)
    const marked = zip(slices(weights, 2), slices(sources, 1), slices(aside, 1)).map(([e, O, P]) =>
      zip(e, O).map(([e_i, i]) => {
        const candidate = (j) => j !== i && !P?.[j] && !(spare_sources && O.includes(j))
        const reached = new Set(best_first(e_i).filter(candidate).slice(0, count))
        return e_i.map((_, j) => reached.has(j))
      }))
    return tensor("bool", weights.shape, marked)
  },
)

/** The new score, from the score now, the score before the round, and α e of the next source. */
const RULES = {
  product: (s, _, loss) => s * (1 - loss),
  sequential: (_, before, loss) => before * (1 - loss),
  sum: (s, before, loss) => s - before * loss,
}

/** Send the signal of each source to its neighbours, in rounds. */
function propagate(scores, weights, neighbours, rounds, combine) {
  const sent = graphs(scores, weights, neighbours).map(([s, e, N]) => {
    for (let t = 0; t < rounds; t++) {
      const before = s
      for (const [e_i, N_i] of zip(e, N))
        s = s.map((x, j) => (N_i[j] ? combine(x, before[j], e_i[j]) : x))
    }
    return s
  })
  return finite_result("scores", tensor(scores.dtype, scores.shape, sent))
}

/**
 * Lower each score by its similarity to the sources that reach it, in rounds.
 *
 *   s_j^(t) = s_j^(t−1) ∏_{i: j ∈ N(i)} (1 − α e_ij)
 *
 * scores: s. weights: e. neighbours: true where j ∈ N(i). rounds: T. strength: α. rule: how several
 * sources combine: "product", "sequential" (only the last counts) or "sum" (their losses add).
 */
export const decay = define(
  {
    scores: Importance("*heads tokens"),
    weights: Finite("*heads sources tokens"),
    neighbours: Bool("*heads sources tokens"),
    rounds: [Whole, 1],
    strength: [Share, 1],
    rule: [Rule, "product"],
  },
  ({ scores, weights, neighbours, rounds, strength: alpha, rule }) =>
    propagate(scores, weights, neighbours, rounds, (s, before, e) =>
      RULES[rule](s, before, alpha * e)),
)

/**
 * Raise each score by its similarity to the sources that reach it, in rounds.
 *
 *   s_j^(t) = s_j^(t−1) ∏_{i: j ∈ N(i)} (1 + α e_ij)
 */
export const enhance = define(
  {
    scores: Importance("*heads tokens"),
    weights: Finite("*heads sources tokens"),
    neighbours: Bool("*heads sources tokens"),
    rounds: [Whole, 1],
    strength: [Share, 1],
  },
  ({ scores, weights, neighbours, rounds, strength: alpha }) =>
    propagate(scores, weights, neighbours, rounds, (s, _, e) => s * (1 + alpha * e)),
)

/**
 * Send every neighbour of a source to the end of the ranking.
 *
 *   s_j^(t) = −∞ where j ∈ N(i) for some source i
 */
export const banish = define(
  {
    scores: Importance("*heads tokens"),
    neighbours: Bool("*heads sources tokens"),
    rounds: [Whole, 1],
  },
  ({ scores, neighbours, rounds }) =>
    tensor(scores.dtype, scores.shape, graphs(scores, neighbours).map(([s, N]) =>
      s.map((x, j) => (rounds && N.some((N_i) => N_i[j]) ? -Infinity : x)))),
)

/**
 * Put the heads of each token side by side.
 *
 *   K ∈ ℝ^(n × d)
 *
 * vectors: keys, values or grouped queries. The first head comes first.
 */
export const concatenate_heads = define(
  { vectors: Float("*batch heads tokens width") },
  ({ vectors }) => joined_heads(vectors),
)

function joined_heads(x) {
  const [heads, tokens, width] = x.shape.slice(-3)
  const joint = slices(x, 3).map((H) => range(tokens).map((t) => H.map((head) => head[t])))
  return { ...x, shape: [...x.shape.slice(0, -3), tokens, heads * width], data: joint.flat(3) }
}

/**
 * Rescore tokens so that those most like a stronger one fall behind.
 *
 *   s^(T) = decay(s, e, N, T),  e = cos(K),  N = top-m(e),  |O_source| = max(1, ⌊f k_l⌋)
 *
 * Without per_head the heads of a layer share one graph: keys side by side, scores averaged.
 * exclude_window: subtract the protected tokens from the budget. adaptive: cap count, as
 * `neighbour_count` does.
 */
export const graphkv_refine = define(
  {
    scores: Importance("*batch heads tokens"),
    keys: Finite("*batch heads tokens width"),
    keep: Whole,
    count: Whole,
    protected: [Bool("*batch heads tokens"), null],
    queries: [Finite("*batch query_heads tokens width"), null],
    values: [Finite("*batch heads tokens width"), null],
    kind: [Kind, "kk"],
    fraction: [Share, 0.3],
    rounds: [Whole, 1],
    strength: [Share, 1],
    rule: [Rule, "product"],
    signal: [Signal, "decay"],
    per_head: [Flag, false],
    spare_sources: [Flag, false],
    clamp: [Flag, false],
    exclude_window: [Flag, false],
    adaptive: [Flag, false],
  },
  (inputs) => {
    const { scores, keep, fraction, kind, clamp, spare_sources, exclude_window } = inputs
    const { rounds, strength, rule, signal, per_head } = inputs
    const tokens = scores.shape.at(-1)
    const vectors = comparable(kind, inputs.keys, inputs.queries, inputs.values)
    const count = inputs.adaptive
      ? neighbour_count({ predefined: inputs.count, length: tokens })
      : inputs.count
    if (!scores.data.length) return scores
    const aside = inputs.protected ?? tensor("bool", scores.shape, scores.data.map(() => false))

    // the heads of each graph: those of a layer, or one
    const heads = (x, rank) =>
      slices(x, rank + 1).flatMap((layer) => (per_head ? layer.map((head) => [head]) : [layer]))
    const side_by_side = (x) => heads(x, 2).map((layer) => {
      const width = x.shape.at(-1) * layer.length
      return tensor(x.dtype, [tokens, width], layer[0].map((_, t) => layer.map((head) => head[t])))
    })
    const masks = heads(aside, 1).map((layer) => columns(layer).map((P_j) => P_j.some(Boolean)))
    const nodes = ["k", "q", "v"].map((letter) => side_by_side(vectors[letter]))
    const drawn = zip(heads(scores, 1), masks, ...nodes)
    if (exclude_window)
      for (const window of masks.map(count_true))
        must(keep >= window, `keep must be >= ${window} to hold the window, got ${keep}`)

    const refined = drawn.map(([layer, mask, keys, queries = null, values = null]) => {
      const score = tensor(wide(scores), [tokens], columns(layer).map(mean))
      const P = tensor("bool", [tokens], mask)
      const window = count_true(mask)
      const wanted = source_count({ keep, fraction, window: exclude_window ? window : 0 })
      const number = Math.min(wanted, tokens - window)
      const sources = source_tokens({ scores: score, count: number, protected: P })
      const weights = edges({ keys, queries, values, sources, kind, clamp })
      const reached = neighbours({ weights, sources, count, protected: P, spare_sources })
      const sent = { scores: score, neighbours: reached, rounds }
      if (signal === "evict") return banish(sent).data
      if (signal === "enhance") return enhance({ ...sent, weights, strength }).data
      return decay({ ...sent, weights, strength, rule }).data
    })
    const repeated = per_head ? 1 : scores.shape.at(-2)
    const all = refined.map((row) => range(repeated).map(() => row))
    const result = tensor(scores.dtype, scores.shape, all)
    return signal === "evict" ? result : finite_result("scores", result)
  },
)

const columns = (rows) => rows[0].map((_, j) => rows.map((row) => row[j]))

// ---- HEX ----

/** How many heads of queries share a head of keys. */
function group_size(queries, keys) {
  const [heads, kv_heads] = [queries.shape.at(-3), keys.shape.at(-3)]
  must(kv_heads ? heads % kv_heads === 0 : heads === 0,
    `the heads of queries must be a multiple of the ${kv_heads} of keys, got ${heads}`)
  return heads / Math.max(1, kv_heads)
}

/**
 * How much each query attends to each cached token.
 *
 *   a_t = softmax(q_t Kᵀ / √d) = exp(q_t Kᵀ / √d − L_t)
 *
 * queries: the last one sees the last key; G heads of them share a head of keys. causal: whether a
 * query sees nothing after its own position. scale: 1 / √d unless given. log_sum_exp: L, if known.
 */
export const attention_weights = define(
  {
    queries: Finite("*batch query_heads queries width"),
    keys: Finite("*batch kv_heads tokens width"),
    causal: [Flag, true],
    scale: [FiniteAbove0, null],
    log_sum_exp: [Float("*batch query_heads queries"), null],
  },
  ({ queries, keys, causal, scale, log_sum_exp: known }) => {
    const [count, width] = queries.shape.slice(-2)
    const tokens = keys.shape.at(-2)
    const group = group_size(queries, keys)
    must(width, "queries and keys must have a width of at least 1, got 0")
    must(!causal || count <= tokens, `causal queries must be at most ${tokens}, got ${count}`)
    must(!tokens || !known || known.data.every(Number.isFinite), "log_sum_exp must be finite")
    const [q, k] = [queries, keys].map((x) => most(x.data.map(Math.abs), 0))
    const dtype = wide(queries, keys)
    const bound = ROUND[dtype](q * k * width * Math.max(1, scale ?? 1))
    must(bound < Infinity, `queries and keys must be in the range where logits are finite`)

    const factor = scale ?? 1 / Math.sqrt(width)
    const weights = zip(slices(queries, 3), slices(keys, 3), slices(known, 2)).map(([Q, K, L]) =>
      Q.map((head, h) =>
        head.map((q, t) => {
          const seen = K[Math.floor(h / group)].slice(0, causal ? tokens - count + t + 1 : tokens)
          const logits = seen.map((k) => dot(q, k) * factor)
          const a = L ? logits.map((x) => Math.exp(x - L[h][t])) : softmax(logits)
          return range(tokens).map((j) => a[j] ?? 0)
        })))
    return tensor(wide(queries, keys, known), [...queries.shape.slice(0, -1), tokens], weights)
  },
)

/** A sum of the rows of V, weighed by the attention a. */
const weighed = (a, V, width) => range(width).map((c) => sum(V.map((v, j) => a[j] * v[c])))

/**
 * Attention of each query over the cache.
 *
 *   Attn(q_t, K, V) = softmax(q_t Kᵀ / √d) V
 *
 * queries, keys, causal, scale: as in `attention_weights`. values: V.
 */
export const attention = define(
  {
    queries: Finite("*batch query_heads queries width"),
    keys: Finite("*batch kv_heads tokens width"),
    values: Finite("*batch kv_heads tokens width"),
    causal: [Flag, true],
    scale: [FiniteAbove0, null],
  },
  ({ queries, keys, values, causal, scale }) => {
    const weights = attention_weights({ queries, keys, causal, scale })
    const group = group_size(queries, keys)
    const width = queries.shape.at(-1)
    const output = zip(slices(weights, 3), slices(values, 3)).map(([A, V]) =>
      A.map((head, h) => head.map((a) => weighed(a, V[Math.floor(h / group)], width))))
    return tensor(queries.dtype, queries.shape, output)
  },
)

/**
 * How far a compressed cache moves the output of each query.
 *
 *   ε_t = ‖Attn(q_t, K, V) − Attn(q_t, K̂, V̂)‖
 *
 * compressed_keys, compressed_values: K̂ and V̂, which have an entry for every token.
 */
export const attention_error = define(
  {
    queries: Finite("*batch query_heads queries width"),
    keys: Finite("*batch kv_heads tokens width"),
    values: Finite("*batch kv_heads tokens width"),
    compressed_keys: Finite("*batch kv_heads tokens width"),
    compressed_values: Finite("*batch kv_heads tokens width"),
    causal: [Flag, true],
    scale: [FiniteAbove0, null],
  },
  ({ queries, keys, values, compressed_keys, compressed_values, causal, scale }) => {
    const dtype = wide(queries, keys, values, compressed_keys, compressed_values)
    const exact = { ...queries, dtype }
    const before = attention({ queries: exact, keys, values, causal, scale })
    const after = attention(
      { queries: exact, keys: compressed_keys, values: compressed_values, causal, scale })
    const moved = rows(before, after).map(([a, b]) => norm(a.map((x, c) => x - b[c])))
    return tensor(dtype, queries.shape.slice(0, -1), moved)
  },
)

/**
 * Sum the attention that each token receives, over all heads and queries.
 *
 *   s_t = Σ_i Σ_q A_{i,t}^(q)
 *
 * queries, keys, causal, log_sum_exp: as in `attention_weights`. span: only the last `span` tokens
 * are scored. normalize: divide by the number of queries that see the token.
 */
export const attention_mass = define(
  {
    queries: Finite("*batch query_heads queries width"),
    keys: Finite("*batch kv_heads tokens width"),
    span: [Whole, null],
    causal: [Flag, true],
    normalize: [Flag, false],
    log_sum_exp: [Float("*batch query_heads queries"), null],
  },
  ({ queries, keys, span, causal, normalize, log_sum_exp }) => {
    const [count, tokens] = [queries.shape.at(-2), keys.shape.at(-2)]
    if (span !== null) at_most("span", span, tokens)
    const weights = attention_weights({ queries, keys, causal, log_sum_exp })
    const scored = range(tokens).slice(tokens - (span ?? tokens))
    const mass = slices(weights, 3).map((A) =>
      scored.map((t) => {
        const drawn = sum(A.map((head) => sum(head.map((row) => row[t]))))
        const seeing = causal ? Math.min(count, tokens - t) : count
        return normalize ? drawn / Math.max(1, seeing) : drawn
      }))
    const shape = [...keys.shape.slice(0, -3), scored.length]
    return finite_result("queries", tensor(weights.dtype, shape, mass))
  },
)

/**
 * Mark the tokens with the largest attention mass.
 *
 *   Mask_hh(t) = 𝕀(t ∈ top_k(s)),  k = ⌊η n⌋
 *
 * mass: s. ratio: η. outside_recent: let none of the last `recent` tokens compete.
 */
export const heavy_hitter_mask = define(
  {
    mass: Finite("*batch tokens"),
    ratio: [Ratio, 0.02],
    recent: [Whole, 0],
    outside_recent: [Flag, false],
  },
  ({ mass, ratio, recent, outside_recent }) => {
    const tokens = mass.shape.at(-1)
    const rivals = outside_recent ? Math.max(0, tokens - recent) : tokens
    const k = floor_share(ratio, tokens)
    return tensor("bool", mass.shape, slices(mass, 1).map((s) => {
      const heavy = new Set(best_first(s.slice(0, rivals)).slice(0, k))
      return s.map((_, t) => heavy.has(t))
    }))
  },
)

/**
 * Mark the last tokens.
 *
 *   Mask_local(t) = 𝕀(t ≥ n − r)
 */
export const recent_mask = define({ tokens: Whole, recent: Whole }, ({ tokens, recent }) =>
  tensor("bool", [tokens], range(tokens).map((t) => t >= tokens - recent)),
)

/**
 * Join heavy hitters and recent tokens.
 *
 *   Mask_H2O = Mask_hh ∨ Mask_local
 */
export const h2o_mask = define(
  {
    mass: Finite("*batch tokens"),
    ratio: [Ratio, 0.02],
    recent: [Whole, 8],
    outside_recent: [Flag, false],
  },
  ({ mass, ratio, recent, outside_recent }) => {
    const tokens = mass.shape.at(-1)
    const heavy = heavy_hitter_mask({ mass, ratio, recent, outside_recent })
    const local = recent_mask({ tokens, recent }).data
    return { ...heavy, data: heavy.data.map((hit, i) => hit || local[i % tokens]) }
  },
)

/** Code the members of one group, and return step and minimum as they are stored. */
function code(name, x, kept, bits, stored) {
  const rest = x.filter((_, j) => !kept?.[j])
  if (!rest.length) return { codes: x.map(() => 0), step: 0, low: 0 }
  const top = 2 ** bits - 1
  const [low, step] = [least(rest), (most(rest) - least(rest)) / top].map(ROUND[stored])
  const finite = Number.isFinite(low) && Number.isFinite(step)
  must(finite, `${name} must have minima and steps in the range of ${stored}`)
  const near = ROUND[stored === "float64" ? stored : "float32"] // a tie there is a tie here
  const coded = (value) => clamp(round_half_even(near((value - low) / step)), 0, top)
  return { codes: x.map((value, j) => (kept?.[j] || !step ? 0 : coded(value))), step, low }
}

/** The precision that steps and minima are stored in. */
const scale_dtype = (x, scales) =>
  scales ?? (["float16", "float64"].includes(x.dtype) ? x.dtype : "float32")

/**
 * Code the members of each group, along the last axis, on a grid from minimum to maximum.
 *
 *   c_j = round((X_j − min X) / Δ),  Δ = (max X − min X) / (2^b − 1)
 *
 * x: X. bits: b. kept: true at entries stored in full precision, which have no part in the grid and
 * code 0. scales: precision of the stored steps and minima, "float16" or "float32".
 */
export const quantise = define(
  {
    x: Finite("*groups members"),
    bits: Bits,
    kept: [Bool("*groups members"), null],
    scales: [Scales, null],
  },
  ({ x, bits, kept, scales }) => {
    const stored = scale_dtype(x, scales)
    const groups = rows(x, kept).map(([X, aside]) => code("x", X, aside, bits, stored))
    const shape = x.shape.slice(0, -1)
    return {
      codes: tensor("uint8", x.shape, groups.map((group) => group.codes)),
      steps: tensor(stored, shape, groups.map((group) => group.step)),
      minima: tensor(stored, shape, groups.map((group) => group.low)),
    }
  },
)

/**
 * The value each code stands for.
 *
 *   X̃_j = c_j Δ + min X
 */
export const dequantise = define(
  { codes: UInt8("*groups members"), steps: Float("*groups"), minima: Float("*groups") },
  ({ codes, steps, minima }) =>
    tensor(wide(steps, minima), codes.shape,
      zip(slices(codes, 1), steps.data, minima.data).map(([c, step, low]) =>
        c.map((c_j) => c_j * step + low))),
)

/**
 * Write the codes of each row as one dense stream of bits.
 *
 *   w_k = Σ_j 2^j β_{32k+j},  β_{bi+j} = ⌊c_i / 2^j⌋ mod 2
 */
export const pack_bits = define(
  { codes: UInt8("*rows length"), bits: Bits },
  ({ codes, bits }) => {
    for (const c of codes.data) at_most("codes", c, 2 ** bits - 1)
    const length = codes.shape.at(-1)
    const count = Math.ceil((bits * length) / 32)
    const packed = slices(codes, 1).map((c) => {
      const words = range(count).map(() => 0)
      for (const p of range(bits * length)) {
        const bit = (c[Math.floor(p / bits)] >> p % bits) & 1
        words[Math.floor(p / 32)] |= bit << p % 32 // the last of 32 bits is the sign
      }
      return words
    })
    return tensor("int32", [...codes.shape.slice(0, -1), count], packed)
  },
)

/**
 * Read codes back from a dense stream of bits.
 *
 *   c_i = Σ_j 2^j β_{bi+j},  β_{32k+j} = ⌊w_k / 2^j⌋ mod 2
 *
 * words: w. bits: b. length: number of codes per row.
 */
export const unpack_bits = define(
  { words: Int32("*rows words"), bits: Bits, length: Whole },
  ({ words, bits, length }) => {
    const count = Math.ceil((bits * length) / 32)
    must(words.shape.at(-1) === count, `words must be ${count} a row, got [${words.shape}]`)
    const codes = slices(words, 1).map((w) =>
      range(length).map((i) =>
        sum(range(bits).map((j) => {
          const p = bits * i + j
          return ((w[Math.floor(p / 32)] >> p % 32) & 1) << j
        }))))
    return tensor("uint8", [...words.shape.slice(0, -1), length], codes)
  },
)

/** Values with a row for each token, over all heads or for one head after another. */
const group_values = (x, value_group) => (value_group === "head" ? x : joined_heads(x))

/** Undo `group_values`, for values of `shape`. */
function ungroup_values(x, value_group, shape) {
  if (value_group === "head") return x
  const [heads, tokens, width] = shape.slice(-3)
  const split = slices(x, 2).map((T) =>
    range(heads).map((h) => range(tokens).map((t) => T[t].slice(h * width, (h + 1) * width))))
  return { ...x, shape, data: split.flat(3) }
}

/** Refuse keys and values of different dtypes, and keys without heads or channels. */
function same_kind(keys, values) {
  const [heads, , width] = keys.shape.slice(-3)
  must(heads && width, `keys must have at least 1 head and 1 channel, got [${keys.shape}]`)
  must(keys.dtype === values.dtype,
    `values must have the dtype of keys, which is ${keys.dtype}, got ${values.dtype}`)
}

/**
 * Quantise and restore a cache: a group is a channel of the keys, a token of the values.
 *
 *   K̃_tc = round((K_tc − min_t K_tc) / Δ_c) Δ_c + min_t K_tc,  Ṽ_tc likewise with min_c and Δ_t
 *
 * bits, scales: as in `quantise`. kept: true at entries that stay as they are. value_group: "token",
 * one group over all heads, or "head", one group for each token of each head.
 */
export const kcvt = define(
  {
    keys: Finite("*batch kv_heads tokens width"),
    values: Finite("*batch kv_heads tokens width"),
    bits: [Bits, 3],
    kept: [Bool("*batch kv_heads tokens width"), null],
    value_group: [ValueGroup, "token"],
    scales: [Scales, null],
  },
  ({ keys, values, bits, kept, value_group, scales }) => {
    same_kind(keys, values)
    const grouped = (x) => x && group_values(x, value_group)
    const by_channel = { x: transposed(keys), kept: kept && transposed(kept), bits, scales }
    const by_token = { x: grouped(values), kept: grouped(kept), bits, scales }
    const rest = transposed(dequantise(quantise(by_channel)))
    const others = ungroup_values(dequantise(quantise(by_token)), value_group, values.shape)
    const where_not_kept = (x, restored) =>
      tensor(x.dtype, x.shape, restored.data.map((value, i) => (kept?.data[i] ? x.data[i] : value)))
    return { keys: where_not_kept(keys, rest), values: where_not_kept(values, others) }
  },
)

/**
 * Join the static and the dynamic mask: what either marks is kept in full precision.
 *
 *   Mask_tc = Mask_exp(t, c) ∨ Mask_H2O(t)
 *
 * expander: the static mask, heads one after the other. dynamic: the tokens that `h2o_mask` marks.
 */
export const hex_mask = define(
  { expander: Bool("tokens channels"), dynamic: Bool("*batch tokens"), kv_heads: Positive },
  ({ expander, dynamic, kv_heads }) => {
    const [tokens, channels] = expander.shape
    must(channels % kv_heads === 0, `kv_heads must divide the ${channels} channels, got ${kv_heads}`)
    const width = channels / kv_heads
    const shape = [...dynamic.shape.slice(0, -1), kv_heads, tokens, width]
    const static_rows = slices(expander, 1)
    const joint = slices(dynamic, 1).map((whole) =>
      range(kv_heads).map((h) =>
        static_rows.map((row, t) =>
          row.slice(h * width, (h + 1) * width).map((on) => on || whole[t]))))
    return tensor("bool", shape, joint)
  },
)

/**
 * Compress a span: keep what the joint mask marks, quantise the remaining entries.
 *
 *   X̂_tc = X_tc where Mask_tc = 1, else X̃_tc
 *
 * expander, dynamic: as in `hex_mask`. bits, value_group, scales: as in `kcvt`. Codes are packed as
 * by `pack_bits`, those of a channel in the order of tokens.
 */
export const hex_compress = define(
  {
    keys: Finite("*batch kv_heads tokens width"),
    values: Finite("*batch kv_heads tokens width"),
    expander: Bool("tokens channels"),
    dynamic: Bool("*batch tokens"),
    bits: [Bits, 3],
    value_group: [ValueGroup, "token"],
    scales: [Scales, null],
  },
  ({ keys, values, expander, dynamic, bits, value_group, scales }) => {
    same_kind(keys, values)
    const [kv_heads, , width] = keys.shape.slice(-3)
    const channels = kv_heads * width
    must(expander.shape[1] === channels, `expander must have ${channels} channels`)
    const kept = hex_mask({ expander, dynamic, kv_heads })
    const grouped = (x) => group_values(x, value_group)
    const K = quantise({ x: transposed(keys), bits, kept: transposed(kept), scales })
    const V = quantise({ x: grouped(values), bits, kept: grouped(kept), scales })
    const value_codes = transposed(ungroup_values(V.codes, value_group, values.shape))
    const chosen = ({ dtype, data }) => {
      const entries = data.filter((_, i) => kept.data[i])
      return tensor(dtype, [entries.length], entries)
    }
    return {
      bits,
      key_words: pack_bits({ codes: K.codes, bits }),
      key_steps: K.steps,
      key_minima: K.minima,
      value_words: pack_bits({ codes: value_codes, bits }),
      value_steps: V.steps,
      value_minima: V.minima,
      kept_keys: chosen(keys),
      kept_values: chosen(values),
      dynamic,
    }
  },
)

const HexConfig = record({
  bits: Bits,
  density: Ratio,
  heavy: Ratio,
  recent: Whole,
  block: Positive,
  mode: Mode,
  period: Positive,
  value_group: ValueGroup,
  scales: nullable(Scales),
  normalize: Flag,
  outside_recent: Flag,
  recent_per_block: Flag,
  carry_recent: Flag,
  near: Flag,
  tile: Flag,
  seed: Seed,
})

/** Every setting of HEX; these are those of HEX-3. */
export const HEX = {
  bits: 3,
  density: 0.03125,
  heavy: 0.02,
  recent: 8,
  block: 96,
  mode: "append",
  period: 1,
  value_group: "token",
  scales: null,
  normalize: false,
  outside_recent: false,
  recent_per_block: true,
  carry_recent: false,
  near: false,
  tile: false,
  seed: 0,
}

const HexBlock = record({
  key_words: Int32("*batch kv_heads width words"),
  key_steps: Float("*batch kv_heads width"),
  key_minima: Float("*batch kv_heads width"),
  value_words: Int32("*batch kv_heads width words"),
  value_steps: Float("*groups"),
  value_minima: Float("*groups"),
  kept_keys: Float("entries"),
  kept_values: Float("entries"),
  dynamic: Bool("*batch tokens"),
})
const HexCache = record({
  blocks: several(HexBlock),
  residual_keys: Float("*batch kv_heads residual width"),
  residual_values: Float("*batch kv_heads residual width"),
  residual_mass: Float("*batch residual"),
  mass: Float("*batch remembered"),
  original_keys: Float("*batch kv_heads originals width"),
  original_values: Float("*batch kv_heads originals width"),
})

/**
 * Count the bytes of every tensor a cache holds.
 *
 *   bytes = Σ_{tensors stored} elements × element size
 *
 * cache: its blocks as from `hex_compress`, residual buffer, attention mass and originals. Parts:
 * code planes; steps and minima; kept entries of the expander mask outside kept tokens; kept tokens;
 * the mark of each token; and what the cache holds beside its blocks.
 */
export const hex_bytes = define({ cache: HexCache }, ({ cache }) => {
  const of_blocks = (count) => sum(cache.blocks.map(count))
  const tokens = of_blocks(({ key_steps, kept_keys, kept_values, dynamic }) => {
    const channels = product(key_steps.shape.slice(-2))
    return count_true(dynamic.data) * channels * (BYTES[kept_keys.dtype] + BYTES[kept_values.dtype])
  })
  const kept = of_blocks((block) => bytes_of(block.kept_keys, block.kept_values))
  return {
    codes: of_blocks((block) => bytes_of(block.key_words, block.value_words)),
    scales: of_blocks((block) =>
      bytes_of(block.key_steps, block.key_minima, block.value_steps, block.value_minima)),
    expander: kept - tokens,
    tokens,
    marks: of_blocks((block) => bytes_of(block.dynamic)),
    residual: bytes_of(cache.residual_keys, cache.residual_values),
    mass: bytes_of(cache.residual_mass, cache.mass),
    originals: bytes_of(cache.original_keys, cache.original_values),
  }
})

/**
 * Say beforehand what a compressed prompt weighs, if no heavy hitter is a recent token.
 *
 *   8 d ⌈b n / 32⌉ + 2 e_s (d + g n) + 2 e ρ d (n − k − r) + 2 e d (k + r) + n + 2 e d R
 *     + e_m (R + m) + 2 e d o
 *
 * config: settings, as `HEX`. tokens: length n + R. kv_heads, width: d is their product. dtype: of
 * the cache. The parts are those of `hex_bytes`.
 */
export const hex_size = define(
  {
    config: HexConfig,
    tokens: Whole,
    kv_heads: [Positive, 8],
    width: [Positive, 128],
    dtype: [CacheType, "float16"],
  },
  ({ config, tokens, kv_heads, width, dtype }) => {
    const { bits, density, heavy, recent, block, mode, value_group, scales, carry_recent } = config
    const held = carry_recent ? recent : 0
    const span = Math.floor(Math.max(0, tokens - held) / block) * block
    const d = kv_heads * width
    const kept = Math.min(span, floor_share(heavy, span) + Math.min(span, recent - held))
    const [e, scale] = [BYTES[dtype], BYTES[scale_dtype({ dtype }, scales)]]
    const groups = span * (value_group === "head" ? kv_heads : 1)
    const remembered = mode === "append" ? 0 : span
    return {
      codes: 8 * d * Math.ceil((bits * span) / 32),
      scales: 2 * scale * ((span ? d : 0) + groups),
      expander: 2 * e * round_half_even(density * d) * (span - kept),
      tokens: 2 * e * d * kept,
      marks: span,
      residual: 2 * e * d * (tokens - span),
      mass: (dtype === "float64" ? 8 : 4) * (tokens - span + remembered),
      originals: 2 * e * d * (mode === "oracle" ? span : 0),
    }
  },
)
