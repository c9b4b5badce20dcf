"""Convert the TeX of an equation to a line of text."""

import re
from inspect import getdoc
from typing import NamedTuple

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
    **dict(alpha="α", beta="β", gamma="γ", delta="δ", epsilon="ϵ", varepsilon="ε", eta="η"),
    **{"theta": "θ", "lambda": "λ"},
    **dict(mu="μ", pi="π", rho="ρ", sigma="σ", tau="τ", phi="ϕ", omega="ω"),
    **dict(Gamma="Γ", Delta="Δ", Lambda="Λ", Sigma="Σ"),
}
NAMES = {name: name for name in ("min", "max", "arg", "cos", "sin", "exp", "ln", "log", "deg")}
NAMES |= {"sum": "∑", "prod": "∏"}
SPACES = {",": " ", ";": " ", " ": " ", "quad": "  ", "qquad": "   "}
SIZES = ("Bigl", "Bigr", "bigl", "bigr")
ACCENTS = {"tilde": "\u0303", "hat": "\u0302", "widehat": "\u0302", "bar": "\u0304"}
ALPHABETS = {"mathcal": 0x1D49C, "mathbb": 0x1D538, "mathfrak": 0x1D504}
LETTERLIKE = dict(
    mathcal=dict(zip("BEFHILMR", "ℬℰℱℋℐℒℳℛ", strict=True)),
    mathbb=dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True)),
    mathfrak={},
)
OPENING = set("([{,;=≤≥<>∈·")
RELATIONS = set("=≤≥<>≠≈∼≺∈∉⊆⊇⟹⟺←⟶⟷↦∪∩∨∧+−∖·×⊙⊗⊕:∥") | {"mod"}


class Part(NamedTuple):
    """A symbol or a group, with its scripts."""

    base: str
    kind: str = ""  # sign, name or words: they get spaces
    below: str = ""
    above: str = ""

    @property
    def text(self) -> str:
        """The part as text."""
        return self.base + self.below + self.above


def tex_equations(name: str) -> list[str]:
    """Return the TeX equations in a public name's docstring."""
    found = re.findall(r"\$\$(.*?)\$\$", getdoc(getattr(reference, name)) or "", re.DOTALL)
    return [" ".join(tex.split()) for tex in found]


def as_text(tex: str) -> str:
    """Return an equation as a line of text."""
    return re.sub(r" {2,}", "  ", row(TOKEN.findall(tex)[::-1], ())).strip()


def row(tokens: list[str], ends: tuple[str, ...]) -> str:
    """Return what stands before one of `ends`, which remains in `tokens`."""
    parts: list[Part] = []
    while tokens and tokens[-1] not in ends:
        token = tokens.pop()
        if token in "^_":
            base = parts.pop() if parts else Part("")
            side = "below" if token == "_" else "above"
            parts.append(base._replace(**{side: script(token, argument(tokens))}))
        elif not token.isspace():
            parts.append(part(token, tokens))
    return join_with_spaces(parts)


def argument(tokens: list[str]) -> str:
    """Return one argument: a group, a command or a character."""
    while tokens[-1].isspace():
        tokens.pop()
    token = tokens.pop()
    if token.isdigit() and len(token) > 1:
        tokens.append(token[1:])
        token = token[0]
    return part(token, tokens).text


def part(token: str, tokens: list[str]) -> Part:
    """Return the part that starts with `token`."""
    name = token.removeprefix("\\")
    if token == "{":
        group = row(tokens, ("}",))
        tokens.pop()
        return Part(group)
    if not token.startswith("\\"):
        return Part({"-": "−", "'": "′"}.get(token, token), "" if token.isalnum() else "sign")
    if name in SIZES:
        return Part(part(tokens.pop(), tokens).base)
    if name in ("frac", "tfrac"):
        return Part(f"{in_brackets(argument(tokens))}/{in_brackets(argument(tokens))}")
    if name == "sqrt":
        return Part(f"√{in_brackets(argument(tokens))}")
    if name in ACCENTS:
        return Part(argument(tokens) + ACCENTS[name])
    if name in ALPHABETS:
        first = ALPHABETS[name] - ord("A")
        letters = (LETTERLIKE[name].get(c) or chr(first + ord(c)) for c in argument(tokens))
        return Part("".join(letters))
    if name in ("mathrm", "operatorname", "operatorname*"):
        return Part(raw_text(tokens), "name")
    if name in ("mathbf", "text"):
        return Part(raw_text(tokens), "words" if name == "text" else "")
    if name == "xrightarrow":
        return Part(f" —{argument(tokens)}→ ")
    if name == "begin":
        return Part(matrix(raw_text(tokens), tokens))
    if name in NAMES:
        return Part(NAMES[name], "name")
    if name in SPACES:
        return Part(SPACES[name])
    return Part(SIGNS[name], "sign")


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


def matrix(kind: str, tokens: list[str]) -> str:
    """Return the rows of an environment."""
    rows, end = [""], ""
    while end != "\\end":
        rows[-1] += row(tokens, ("&", "\\\\", "\\end"))
        end = tokens.pop()
        rows[-1] += ", " * (end == "&")
        rows += [""] * (end == "\\\\")
    raw_text(tokens)
    return f"{{ {'; '.join(rows)} }}" if kind == "cases" else f"({'; '.join(rows)})"


def join_with_spaces(parts: list[Part]) -> str:
    """Return parts as text, with spaces around relations and after names."""
    out = ""
    for index, (part, after) in enumerate(zip(parts, [*parts[1:], Part("")], strict=True)):
        said = part.text
        if said == "−" and (not out or out.rstrip()[-1:] in OPENING):
            pass  # a unary minus
        elif part.kind == "sign" and said in RELATIONS and index:
            said = f" {said} "
        elif part.kind in ("name", "words") and after.text[:1] not in ("(", "[", ",", ")", ""):
            said += " "
        if part.kind == "name" and out and (out[-1].isalnum() or out[-1] in ")]"):
            said = f" {said}"
        out += said
    return re.sub(r" +,", ",", re.sub(r" {2}(?=[^ ])", " ", re.sub(r",(?=[^ ])", ", ", out)))


def script(mark: str, said: str) -> str:
    """Return a subscript or superscript as text."""
    return f"{mark}{said}" if len(said) == 1 or said.isdigit() else f"{mark}{{{said}}}"


def in_brackets(said: str) -> str:
    """Return a part as text, in brackets if it is more than one symbol."""
    return said if re.fullmatch(r"\d+|\w(_\w)?|[^\s(/+−]", said) else f"({said})"
