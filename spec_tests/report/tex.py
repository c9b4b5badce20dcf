"""Convert the TeX of an equation to a line of text, and to MathML."""

import re
from html import escape
from inspect import getdoc
from typing import Any, NamedTuple

import reference

TOKEN = re.compile(r"\\[a-zA-Z]+\*?|\\.|\d+|\s+|.", re.DOTALL)
SIGNS = {
    **dict(cdot="·", times="×", otimes="⊗", oplus="⊕", odot="⊙", setminus="∖", cup="∪", cap="∩"),
    **dict(le="≤", ge="≥", ne="≠", approx="≈", sim="∼", prec="≺", vee="∨", lor="∨", land="∧"),
    **{"in": "∈", "notin": "∉", "subseteq": "⊆", "supseteq": "⊇", "mid": "|", "forall": "∀"},
    **dict(leftarrow="←", longrightarrow="⟶", longleftrightarrow="⟷", mapsto="↦", nabla="∇"),
    **dict(implies="⟹", iff="⟺", dots="…", infty="∞", ell="ℓ", iota="ι", top="⊤", bmod="mod"),
    **dict(lfloor="⌊", rfloor="⌋", lceil="⌈", rceil="⌉", langle="⟨", rangle="⟩", Vert="∥"),
    **dict(lVert="‖", rVert="‖", lvert="|", rvert="|"),
    **{"{": "{", "}": "}", "|": "‖", "%": "%"},
}
GREEK = {
    **dict(alpha="α", beta="β", gamma="γ", delta="δ", epsilon="ϵ", varepsilon="ε", eta="η"),
    **{"theta": "θ", "lambda": "λ"},
    **dict(mu="μ", pi="π", rho="ρ", sigma="σ", tau="τ", phi="ϕ", omega="ω"),
    **dict(Gamma="Γ", Delta="Δ", Lambda="Λ", Sigma="Σ"),
}
BIG = {"sum": "∑", "prod": "∏"}
FUNCTIONS = ("min", "max", "arg", "cos", "sin", "exp", "ln", "log", "deg")
SPACES = {",": " ", ";": " ", " ": " ", "quad": "  ", "qquad": "   "}
SIZES = ("Bigl", "Bigr", "bigl", "bigr")
ACCENTS = {"tilde": "\u0303", "hat": "\u0302", "widehat": "\u0302", "bar": "\u0304"}
ABOVE = {"\u0303": "~", "\u0302": "^", "\u0304": "¯"}
ALPHABETS = {"mathcal": 0x1D49C, "mathbb": 0x1D538, "mathfrak": 0x1D504}
LETTERLIKE = dict(
    mathcal=dict(zip("BEFHILMR", "ℬℰℱℋℐℒℳℛ", strict=True)),
    mathbb=dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True)),
    mathfrak={},
)


class Node(NamedTuple):
    """A node of the syntax tree of an equation."""

    kind: str
    parts: tuple[Any, ...]


def tex_equations(name: str) -> list[str]:
    """Return the TeX equations in a public name's docstring."""
    found = re.findall(r"\$\$(.*?)\$\$", getdoc(getattr(reference, name)) or "", re.DOTALL)
    return [" ".join(tex.split()) for tex in found]


def as_text(tex: str) -> str:
    """Return an equation as a line of text."""
    return re.sub(r" {2,}", "  ", text(parse(tex))).strip()


def as_mathml(tex: str) -> str:
    """Return an equation as MathML."""
    return f'<math display="block">{mathml(parse(tex))}</math>'


def parse(tex: str) -> Node:
    """Return the syntax tree of an equation."""
    tokens = TOKEN.findall(tex)[::-1]
    return row(tokens, ())


def row(tokens: list[str], ends: tuple[str, ...]) -> Node:
    """Parse parts up to one of `ends`, which remains in `tokens`."""
    parts: list[Node] = []
    while tokens and tokens[-1] not in ends:
        token = tokens.pop()
        if token in "^_":
            base = parts.pop() if parts else Node("row", ())
            if base.kind != "scripts":
                base = Node("scripts", (base, None, None))
            inner, below, above = base.parts
            part = argument(tokens)
            parts.append(
                Node("scripts", (inner, *((part, above) if token == "_" else (below, part))))
            )
        elif token == "'":
            parts.append(Node("sign", ("′",)))
        elif not token.isspace():
            parts.extend(atom(token, tokens))
    return Node("row", tuple(parts))


def argument(tokens: list[str]) -> Node:
    """Parse one argument: a group, a command or a character."""
    while tokens[-1].isspace():
        tokens.pop()
    token = tokens.pop()
    if token.isdigit() and len(token) > 1:
        tokens.append(token[1:])
        token = token[0]
    return Node("row", tuple(atom(token, tokens)))


def atom(token: str, tokens: list[str]) -> list[Node]:
    """Parse the part that starts with `token`."""
    name = token.removeprefix("\\")
    if token == "{":
        group = row(tokens, ("}",))
        tokens.pop()
        return [group]
    if not token.startswith("\\"):
        kind = "number" if token.isdigit() else "letter" if token.isalpha() else "sign"
        return [Node(kind, ("−" if token == "-" else token,))]
    if name in SIZES:
        return [Node("tall", part.parts) for part in atom(tokens.pop(), tokens)]
    if name in ("frac", "tfrac"):
        return [Node("fraction", (argument(tokens), argument(tokens)))]
    if name == "sqrt":
        return [Node("root", (argument(tokens),))]
    if name in ACCENTS:
        return [Node("accent", (argument(tokens), ACCENTS[name]))]
    if name in ALPHABETS:
        return [Node("letter", (alphabet_letters(name, text(argument(tokens))),))]
    if name in ("mathbf", "mathrm", "operatorname", "operatorname*", "text"):
        kind = "bold" if name == "mathbf" else "words" if name == "text" else "name"
        return [Node(kind, (raw_text(tokens),))]
    if name == "xrightarrow":
        return [Node("arrow", (argument(tokens),))]
    if name == "begin":
        return [matrix(raw_text(tokens), tokens)]
    if name in BIG:
        return [Node("big", (BIG[name],))]
    if name in FUNCTIONS:
        return [Node("name", (name,))]
    if name in SPACES:
        return [Node("space", (SPACES[name],))]
    if name in GREEK:
        return [Node("letter", (GREEK[name],))]
    return [Node("letter" if name in ("ell", "iota") else "sign", (SIGNS[name],))]


def raw_text(tokens: list[str]) -> str:
    """Return the raw text of a group or of one token."""
    while tokens[-1].isspace():
        tokens.pop()
    if tokens[-1] != "{":
        return tokens.pop()
    tokens.pop()
    found = ""
    while (token := tokens.pop()) != "}":
        found += token
    return found.replace("$", "")


def matrix(kind: str, tokens: list[str]) -> Node:
    """Parse the rows of an environment."""
    rows, cells = [], []
    while True:
        cells.append(row(tokens, ("&", "\\\\", "\\end")))
        end = tokens.pop()
        if end != "&":
            rows.append(tuple(cells))
            cells = []
        if end == "\\end":
            raw_text(tokens)
            return Node(kind, tuple(rows))


def alphabet_letters(alphabet: str, letters: str) -> str:
    """Return capital letters in a mathematical alphabet."""
    known = LETTERLIKE[alphabet]
    return "".join(known.get(c, chr(ALPHABETS[alphabet] + ord(c) - ord("A"))) for c in letters)


def text(node: Node) -> str:
    """Return a part as text."""
    kind, parts = node
    if kind == "row":
        return join_with_spaces(parts)
    if kind == "scripts":
        base, below, above = parts
        return text(base) + script("_", below) + script("^", above)
    if kind == "fraction":
        return "/".join(put_in_brackets(part) for part in parts)
    if kind == "root":
        return f"√{put_in_brackets(parts[0])}"
    if kind == "accent":
        return text(parts[0]) + parts[1]
    if kind == "arrow":
        return f" —{text(parts[0])}→ "
    if kind in ("cases", "pmatrix"):
        rows = "; ".join(", ".join(map(text, cells)) for cells in parts)
        return f"{{ {rows} }}" if kind == "cases" else f"({rows})"
    return str(parts[0])


def join_with_spaces(parts: tuple[Node, ...]) -> str:
    """Return parts as text, with spaces around relations and after names."""
    out = ""
    for at, part in enumerate(parts):
        said, kind = text(part), part.kind
        if kind == "scripts":
            kind = part.parts[0].kind
        if said == "−" and (not out or out.rstrip()[-1:] in OPENING):
            pass  # a unary minus
        elif kind == "sign" and said in RELATIONS and at:
            said = f" {said} "
        elif kind in ("name", "big", "words") and at + 1 < len(parts):
            following = text(parts[at + 1])
            said += "" if following[:1] in ("(", "[", ",", ")", "") else " "
        if kind in ("name", "big") and out and (out[-1].isalnum() or out[-1] in ")]"):
            said = f" {said}"
        out += said
    return re.sub(r" +,", ",", re.sub(r" {2}(?=[^ ])", " ", re.sub(r",(?=[^ ])", ", ", out)))


OPENING = set("([{,;=≤≥<>∈·")
RELATIONS = set("=≤≥<>≠≈∼≺∈∉⊆⊇⟹⟺←⟶⟷↦∪∩∨∧+−∖·×⊙⊗⊕:∥") | {"mod"}


def script(mark: str, part: Node | None) -> str:
    """Return a subscript or superscript as text."""
    if part is None:
        return ""
    said = text(part)
    return f"{mark}{said}" if len(said) == 1 or said.isdigit() else f"{mark}{{{said}}}"


def put_in_brackets(part: Node) -> str:
    """Return a part as text, in brackets if it is more than one symbol."""
    said = text(part)
    return said if re.fullmatch(r"\d+|\w(_\w)?|[^\s(/+−]", said) else f"({said})"


def mathml(node: Node) -> str:
    """Return a part as MathML."""
    kind, parts = node
    if kind == "row":
        return "<mrow>" + "".join(map(mathml, parts)) + "</mrow>"
    if kind == "scripts":
        base, below, above = parts
        limits = base.kind == "big" or (base.kind == "name" and base.parts[0] in LIMITS)
        tags = ("munder", "mover", "munderover") if limits else ("msub", "msup", "msubsup")
        tag = tags[2] if below and above else tags[0] if below else tags[1]
        inner = "".join(mathml(part) for part in parts if part is not None)
        return f"<{tag}>{inner}</{tag}>"
    if kind == "fraction":
        return f"<mfrac>{mathml(parts[0])}{mathml(parts[1])}</mfrac>"
    if kind == "root":
        return f"<msqrt>{mathml(parts[0])}</msqrt>"
    if kind == "accent":
        return f'<mover accent="true">{mathml(parts[0])}<mo>{ABOVE[parts[1]]}</mo></mover>'
    if kind == "arrow":
        return f'<mover><mo stretchy="true">→</mo>{mathml(parts[0])}</mover>'
    if kind in ("cases", "pmatrix"):
        cells = "".join(
            "<mtr>" + "".join(f"<mtd>{mathml(cell)}</mtd>" for cell in cells) + "</mtr>"
            for cells in parts
        )
        left, right = ("{", "") if kind == "cases" else ("(", ")")
        right = f"<mo>{right}</mo>" if right else ""
        return f"<mrow><mo>{left}</mo><mtable>{cells}</mtable>{right}</mrow>"
    said = escape(str(parts[0]))
    if kind == "space":
        return f'<mspace width="{len(said) * 0.3:.1f}em"></mspace>'
    if kind == "name":
        name = f'<mi mathvariant="normal">{said}</mi>'
        return f'<mrow>{name}<mspace width="0.1em"></mspace></mrow>'
    if kind == "bold":
        return f'<mi style="font-weight: bold">{said}</mi>'
    if kind == "sign":
        return f'<mo stretchy="false">{said}</mo>'
    tags = dict(number="mn", letter="mi", words="mtext", tall="mo", big="mo")
    return f"<{tags[kind]}>{said}</{tags[kind]}>"


LIMITS = ("min", "max", "arg", "top", "softmax", "mean")
