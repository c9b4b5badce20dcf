"""docs/adding.md names every copy of a default, and each has its number."""

import re
from pathlib import Path

import reference

DOCS = Path(__file__).parent
COPY = r"""(?x)
    def\ \w+\([^)]*\bradius(?::\ \w+)?\ ?=\ ?(\d+)  # a signature in Python
    |\bradius:\ \[\w+,\ (\d+)\]  # one in JavaScript
    |\("radius",\ (\d+)  # a number that a program in C reads
    |\bradius:\ \{.*\bvalue:\ (\d+)  # where a slider starts
"""
INCLUDED = re.compile(r"<!-- file .*?<!-- end -->", re.DOTALL)  # by docs/generate.py


def test_each_copy_of_the_radius_is_in_the_table_and_has_its_number():
    page, root = (DOCS / "adding.md").read_text(), DOCS.parent
    files = [*DOCS.rglob("*"), *(root / "spec_tests/vectors").rglob("*")]
    found = {
        file.relative_to(root).as_posix(): {"".join(copy) for copy in copies}
        for file in files
        if file.suffix in {".py", ".js", ".c", ".md", ".ipynb"}
        and not {"generated", "laws"} & set(file.parts)
        if (copies := re.findall(COPY, INCLUDED.sub("", file.read_text())))
    }
    assert len(found) > 5
    assert not [name for name in found if f"`{name}`" not in page]
    default = str(reference.HubSettings().radius)
    assert not [name for name, copies in found.items() if copies != {default}], default
