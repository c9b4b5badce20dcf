// Compare a JavaScript module with the archive: node judge.mjs [MODULE] [--level edges] [--own-caches]
//
// A tensor is { shape, dtype, data } with a flat `data`, and a record is an object of its fields.
// The module's functions have the names of the vectors, and take their arguments as one object.
// MODULE is ./example.mjs unless given; the levels are values, edges and errors.
// With --own-caches the caches of traces may have any form, and only the steps that read them are compared.
import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"

const here = dirname(fileURLToPath(import.meta.url))
const LEVELS = ["values", "edges", "errors"]
const WORDS = { inf: Infinity, "-inf": -Infinity, nan: NaN }
const FLOATS = ["float64", "float32", "float16", "bfloat16"]
const DTYPES = [...FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool"]

const is_object = (x) => x !== null && typeof x === "object" && !Array.isArray(x)
const lengths = (x) => (Array.isArray(x) ? [x.length, ...lengths(x[0])] : [])
const flat = (x) => [x].flat(Infinity)

/** The value of a JSON value. */
function read(value) {
  if (typeof value === "string") return WORDS[value] ?? value
  if (!is_object(value)) return value
  if ("shape" in value) return { shape: value.shape, dtype: value.of, data: [] }
  const entries = Object.entries(value)
  const [name, inner] = entries[0] ?? []
  if (entries.length === 1 && name === "tuple") return inner.map(read)
  if (entries.length === 1 && DTYPES.includes(name))
    return { shape: lengths(inner), dtype: name, data: flat(inner).map(read) }
  if (entries.length === 1 && /^[A-Z]/.test(name)) return read_fields(inner)
  return read_fields(value)
}

const read_fields = (fields) =>
  Object.fromEntries(Object.entries(fields).map(([name, x]) => [name, read(x)]))

/** The first difference between a result and the expected one, or nothing. */
function difference(actual, expected, tolerance, place) {
  if (expected?.sha256) {
    const digest = createHash("sha256").update(Uint8Array.from(actual.data)).digest("hex")
    return digest === expected.sha256 ? undefined : `${place} has another digest`
  }
  if (expected?.shape) {
    const same = actual?.dtype === expected.dtype && `${actual.shape}` === `${expected.shape}`
    if (!same) return `${place} must be ${kind(expected)}, got ${kind(actual)}`
    const bounds = Array.isArray(tolerance) ? flat(tolerance) : expected.data.map(() => tolerance)
    const at = expected.data.findIndex((x, i) => !near(actual.data[i], x, bounds[i]))
    return at < 0 ? undefined : `${place}[${at}] must be ${expected.data[at]}, got ${actual.data[at]}`
  }
  if (is_object(expected) || Array.isArray(expected)) {
    if (actual === null || typeof actual !== "object") return `${place} must have parts`
    const parts = Array.isArray(expected) ? Object.values(actual) : actual
    for (const [name, x] of Object.entries(expected)) {
      const found = difference(parts[name], x, tolerance?.[name], `${place}.${name}`)
      if (found) return found
    }
    return undefined
  }
  return near(actual, expected, tolerance) ? undefined : `${place} must be ${expected}, got ${actual}`
}

const kind = (x) => (x?.shape ? `a ${x.dtype} tensor of shape [${x.shape}]` : `${x}`)
const near = (actual, expected, tolerance) =>
  actual === expected ||
  (Number.isNaN(actual) && Number.isNaN(expected)) ||
  (typeof actual === "number" && Math.abs(actual - expected) <= (tolerance ?? 0))

/** The result of a call, and its difference from the expected one, or nothing. */
function judged(module, one, inputs, own_caches = false) {
  const refusal = one.expected?.error
  let result
  try {
    result = module[one.function](inputs)
  } catch (error) {
    return { wrong: refusal ? undefined : `refused: ${error.message}` }
  }
  if (refusal) return { result, wrong: "must be refused" }
  if (own_caches && is_cache(one.expected)) return { result }
  return { result, wrong: difference(result, read(one.expected), one.tolerance, "the result") }
}

const is_cache = (expected) =>
  is_object(expected) && Object.keys(expected).some((name) => name.endsWith("Cache"))

/** The outcome of each vector that a module offers. */
function judge_vectors(module, vectors, levels) {
  return vectors
    .filter((one) => one.function in module && !one.drawn && levels.includes(one.level))
    .map((one) => ({ place: one.id, ...judged(module, one, read_fields(one.inputs)) }))
}

/** The outcome of each step up to the first wrong one; steps that need a lacking one are skipped. */
function judge_trace(module, trace, own_caches) {
  const results = {}
  const outcomes = []
  for (const [at, step] of trace.steps.entries()) {
    const places = Object.values(step.inputs).flatMap((x) => (is_object(x) && "step" in x ? [x.step] : []))
    if (!(step.function in module) || !places.every((place) => place in results)) continue
    const given = Object.entries(step.inputs).map(([name, x]) =>
      [name, is_object(x) && "step" in x ? results[x.step] : read(x)])
    const outcome = judged(module, step, Object.fromEntries(given), own_caches)
    outcomes.push({ place: `${trace.id}, step ${at} (${step.function})`, ...outcome })
    if (outcome.wrong) break
    results[at] = outcome.result
  }
  return outcomes
}

/** The JSON files of a folder of the archive, in order. */
const files = (folder) =>
  readdirSync(join(here, "..", folder), { recursive: true })
    .filter((name) => name.endsWith(".json"))
    .sort()
    .map((name) => JSON.parse(readFileSync(join(here, "..", folder, name), "utf8")))

const own_caches = process.argv.includes("--own-caches")
const words = process.argv.slice(2).filter((word) => word !== "--own-caches")
const at = words.indexOf("--level")
const [, top] = at < 0 ? ["", "edges"] : words.splice(at, 2)
const place = words.length ? pathToFileURL(resolve(words[0])).href : "./example.mjs"
const module = await import(place)
const levels = LEVELS.slice(0, LEVELS.indexOf(top) + 1)
const found = {
  vectors: files("vectors").flatMap((vectors) => judge_vectors(module, vectors, levels)),
  "steps of traces": files("traces").flatMap((trace) => judge_trace(module, trace, own_caches)),
}
if (!found.vectors.length) {
  console.error(`${place} offers no function of the archive`)
  process.exit(1)
}
for (const [name, outcomes] of Object.entries(found)) {
  const wrong = outcomes.filter((outcome) => outcome.wrong)
  for (const outcome of wrong) console.log(`${outcome.place}: ${outcome.wrong}`)
  console.log(`${name}: ${outcomes.length - wrong.length} right, ${wrong.length} wrong`)
  if (wrong.length) process.exitCode = 1
}
