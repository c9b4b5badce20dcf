"""The module with the mends that the page prints, in a folder of its own."""

import re
import shutil
from pathlib import Path

HERE = Path(__file__).parent


def mended(folder: Path) -> Path:
    """Copy the module into a folder, each `diff` block of the page applied to it."""
    for file in (*HERE.glob("*.py"), *HERE.glob("*.txt")):
        shutil.copy(file, folder)
    file = folder / "hubkv_numpy.py"
    text = file.read_text()
    for block in re.findall(r"^```diff\n(.*?)^```$", (HERE / "index.md").read_text(), re.M | re.S):
        lines = block.splitlines()
        old = "\n".join(line[1:] for line in lines if line[:1] in "- ")
        new = "\n".join(line[1:] for line in lines if line[:1] in "+ ")
        if text.count(old) != 1:
            raise ValueError(f"stands {text.count(old)} times in {file.name}:\n{old}")
        text = text.replace(old, new)
    file.write_text(text)
    return folder
