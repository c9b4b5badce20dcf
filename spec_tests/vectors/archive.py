"""Build the archive of vectors: the same bytes for the same version, on any machine.

The archive is built in the repository, since it contains parts of the docs. Worked vectors get the
form of the generated ones: every tensor has its dtype, and every float its tolerance.
"""

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import reference
from spec_tests.accuracy import is_float, narrowing, rounding
from spec_tests.index import HERE, ROOT
from spec_tests.json_values import as_lines, read, written
from spec_tests.report.report_data import suite_version
from spec_tests.vectors.flags import flags_of, level_of, readings_of
from spec_tests.vectors.generate import as_tolerance
from spec_tests.vectors.judge import traces

FORMAT = 1
"""Version of the archive's form; every change that breaks a reader raises it."""
FOR_PROGRAMS = Path(__file__).parent / "for_programs"
COPIES = {
    "README.md": FOR_PROGRAMS / "README.md",
    "schema.json": HERE / "vectors.schema.json",
    "python/judge.py": FOR_PROGRAMS / "judge.py",
    "python/example.py": FOR_PROGRAMS / "example.py",
    "javascript/judge.mjs": FOR_PROGRAMS / "judge.mjs",
    "javascript/example.mjs": FOR_PROGRAMS / "example.mjs",
    "javascript/kv.js": ROOT / "docs/js/kv.js",
    "LICENSE": ROOT / "LICENSE",
}
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
HEADING = re.compile(r'^##+ (.+?) <a id="(C\d+|E-[A-Z]\d+)"[^>]*></a>$', re.MULTILINE)
Vector = dict[str, Any]


def files() -> dict[str, bytes]:
    """Return the content of each file of the archive, by its path.

    Raises:
        FileNotFoundError: this is an installed package, without the docs.
    """
    if not (ROOT / "docs").is_dir():
        raise FileNotFoundError(f"the archive is built in the repository: {ROOT} has no docs")
    found = {path: file.read_bytes() for path, file in COPIES.items()}
    found["FLAGS.md"] = LINK.sub(r"\1", (ROOT / "docs/flags.md").read_text()).encode()
    found["readings.json"] = as_lines(readings()).encode()
    vectors = archived_vectors()
    for idea, cases in vectors.items():
        found[f"vectors/{idea}.json"] = as_lines(cases).encode()
    for trace in traces():
        found[f"traces/{trace['id']}.json"] = (json.dumps(trace) + "\n").encode()
    every = [case for cases in vectors.values() for case in cases]
    return found | {"manifest.json": manifest(found, every).encode()}


def manifest(found: dict[str, bytes], vectors: list[Vector]) -> str:
    """Return the manifest: version, digest and counts, and the digest of each file.

    The digest of the archive is that of the lines that `sha256sum` prints of all other files.
    """
    digests = {path: hashlib.sha256(found[path]).hexdigest() for path in sorted(found)}
    lines = "".join(f"{digest}  {path}\n" for path, digest in digests.items())
    kinds = Counter(case["origin"] for case in vectors)
    said = {
        "name": "kvspec-vectors",
        "format": FORMAT,
        "version": suite_version(),
        "digest": hashlib.sha256(lines.encode()).hexdigest(),
        "counts": {
            "functions": len({case["function"] for case in vectors}),
            "vectors": len(vectors),
            "origin": dict(sorted(kinds.items())),
            "level": dict(sorted(Counter(case["level"] for case in vectors).items())),
            "flags": dict(sorted(Counter(f for case in vectors for f in case["flags"]).items())),
            "traces": len(traces()),
            "steps": sum(len(trace["steps"]) for trace in traces()),
        },
        "files": digests,
    }
    return json.dumps(said, indent=1) + "\n"


def readings() -> list[dict[str, str]]:
    """Return the errata and conventions by their ids, with their titles."""
    pages = [ROOT / "docs/conventions.md", *sorted((ROOT / "docs/errata").glob("*.md"))]
    found = [HEADING.findall(page.read_text()) for page in pages]
    return [
        {"id": name, "title": title, "page": str(page.relative_to(ROOT))}
        for page, headings in zip(pages, found, strict=True)
        for title, name in headings
    ]


def archived_vectors() -> dict[str, list[Vector]]:
    """Return the vectors of each idea: worked ones, then generated ones."""
    found: dict[str, list[Vector]] = {}
    for part in ("vectors", "generated"):
        for file in HERE.rglob(f"{part}.json"):
            vectors, idea = json.loads(file.read_text()), file.parent.relative_to(HERE).as_posix()
            made = map(archived, vectors) if part == "vectors" else vectors
            found.setdefault(idea, []).extend(made)
    return dict(sorted(found.items(), key=lambda idea: Path(idea[0])))


def archived(case: Vector) -> Vector:
    """Return a worked vector in the form of the archive."""
    name, inputs, expected = case["function"], read(case["inputs"]), read(case["expected"])
    flags = flags_of(name, inputs)
    if not isinstance(expected, dict) or "sha256" not in expected:
        expected = as_typed(expected, getattr(reference, name)(**inputs))
    tolerance = as_tolerance(expected, usual_bound)
    made = {key: value for key, value in case.items() if key not in ("inputs", "expected")}
    made |= {
        "origin": "authors' code" if "source" in case else "by hand",
        "level": level_of(flags),
        "flags": flags,
        "reading": readings_of(name),
        "inputs": {key: written(value, exact=False) for key, value in inputs.items()},
        "expected": as_expected(expected),
    }
    return made | ({} if tolerance is None else {"tolerance": tolerance})


def as_typed(expected: Any, result: Any) -> Any:
    """Return an expected value with floats in the dtypes of the result."""
    if isinstance(expected, dict):
        return {field: as_typed(part, getattr(result, field)) for field, part in expected.items()}
    if type(expected) is tuple:
        return tuple(as_typed(*pair) for pair in zip(expected, result, strict=True))
    if isinstance(expected, float) and isinstance(result, Tensor):  # a tensor of one element
        return torch.full_like(result, expected)
    if isinstance(expected, Tensor) and is_float(expected):
        return expected.to(result.dtype)
    return expected


def as_expected(value: Any) -> Any:
    """Return an expected value as JSON; a dictionary holds some fields of a record."""
    if isinstance(value, dict):
        return {field: as_expected(part) for field, part in value.items()}
    if type(value) is tuple:
        return {"tuple": [as_expected(part) for part in value]}
    return value if isinstance(value, str) else written(value, exact=False)


def usual_bound(value: Any) -> Tensor | None:
    """Return the bound of a worked number: C11's for numbers of its size, at least 1."""
    if isinstance(value, float):
        value = torch.tensor(value, dtype=torch.float64)
    if not is_float(value):
        return None
    size = value.abs().clamp(min=1).nan_to_num(0, 0, 0).where(value.isfinite(), 0)
    return rounding(value.dtype, size) + narrowing(value.dtype, size)


def packed(found: dict[str, bytes]) -> bytes:
    """Return files as a gzipped tar without times, owners or other traces of the machine."""
    top, tar = f"kvspec-vectors-{suite_version()}", io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(found):
            entry = tarfile.TarInfo(f"{top}/{path}")
            entry.size = len(found[path])
            archive.addfile(entry, io.BytesIO(found[path]))
    return gzip.compress(tar.getvalue(), mtime=0)
