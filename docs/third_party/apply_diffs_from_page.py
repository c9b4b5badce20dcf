"""Apply the fixes that the page prints to a copy of the module."""

import re
import shutil
from pathlib import Path

HERE = Path(__file__).parent


def fixed_copy(folder: Path) -> Path:
    """Copy the module into a folder, apply each `diff` block of the page, and return the folder."""
    for file in (*HERE.glob("*.py"), *HERE.glob("*.txt")):
        shutil.copy(file, folder)
    file = folder / "hubkv_numpy.py"
    text = file.read_text()
    for block in re.findall(r"^```diff\n(.*?)^```$", (HERE / "index.md").read_text(), re.M | re.S):
        lines = block.splitlines()
        old = "\n".join(line[1:] for line in lines if line[:1] in "- ")
        new = "\n".join(line[1:] for line in lines if line[:1] in "+ ")
        if text.count(old) != 1:
            raise ValueError(f"found {text.count(old)} times in {file.name}:\n{old}")
        text = text.replace(old, new)
    file.write_text(text)
    return folder
