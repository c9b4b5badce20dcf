// Serve kv.js over a pipe, as docs/program.md says: node docs/js/program.mjs
import { createInterface } from "node:readline"
import * as kv from "./kv.js"

const WORDS = { inf: Infinity, "-inf": -Infinity, nan: NaN }

const lengths = (x) => (Array.isArray(x) ? [x.length, ...lengths(x[0])] : [])

/** The tensor, number, flag, word, list or named fields that a JSON value stands for. */
function read(value) {
  if (typeof value === "string") return WORDS[value] ?? value
  if (value === null || typeof value !== "object") return value
  if ("shape" in value) return kv.tensor(value.of, value.shape, [])
  const [[name, inner]] = Object.entries(value)
  if (name === "tuple") return inner.map(read)
  if (!Array.isArray(inner) && typeof inner === "object") return fields(inner)
  return kv.tensor(name, lengths(inner), [inner].flat(Infinity).map(read))
}

const fields = (value) =>
  Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, read(inner)]))

/** A result as JSON. `JSON.stringify` would write 0 for -0, and null for infinities and NaN. */
function written(x) {
  if (Array.isArray(x)) return `[${x.map(written)}]`
  if (typeof x !== "object") {
    const word = Object.keys(WORDS).find((word) => Object.is(WORDS[word], x))
    return word ? `"${word}"` : Object.is(x, -0) ? "-0.0" : `${x}`
  }
  if (!x.shape) return `{"tuple":${written(Object.values(x))}}`
  if (x.shape.includes(0)) return JSON.stringify({ shape: x.shape, of: x.dtype })
  return `{"${x.dtype}":${written(kv.nested(x))}}`
}

function answer({ function: name, inputs }) {
  try {
    return `"result":${written(kv[name](fields(inputs)))}`
  } catch (error) {
    if (!(error instanceof kv.Refusal)) throw error
    return `"error":"${error.kind}","message":${JSON.stringify(error.message)}`
  }
}

const functions = Object.keys(kv).filter((name) => kv[name].signature)
const dtypes = ["float64", "float32", "float16", "bfloat16"]
console.log(JSON.stringify({ protocol: 1, functions, dtypes, tensors: "lists" }))
for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line)
  console.log(`{"id":${call.id},${answer(call)}}`)
}
