// What a copy button gives of an example: its code, without prompts and without what it prints.
const code_of = (example) => {
  const lines = []
  for (const line of example.split("\n")) {
    const prompt = line.slice(0, 4).trimEnd()
    if (prompt !== ">>>" && prompt !== "...") continue
    // an indented body ends with an empty line where it is pasted into an interpreter
    if (prompt === ">>>" && /^\s/.test(lines.at(-1) ?? "")) lines.push("")
    lines.push(line.slice(4))
  }
  return lines.join("\n")
}

document$.subscribe(({ body }) => {
  for (const example of body.querySelectorAll("pre > code")) {
    const text = example.textContent
    if (text.startsWith(">>>")) example.dataset.copy = code_of(text)
  }
})
