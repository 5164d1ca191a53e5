"""The address at which the project is published, in the pages that show it.

`make site ADDRESS=https://...` sets it; without it no page shows any.
"""

import json

UNSET = 'ADDRESS = ""'  # of the notebooks' first cell


def check(address: str) -> str:
    """Returns the address.

    Raises:
      ValueError: it is none that a browser and git can open.
    """
    if address and not address.startswith("https://"):
        raise ValueError(f"ADDRESS must begin with https://; got {address!r}")
    return address.rstrip("/")


def notebook(text: str, address: str) -> str:
    """Returns a notebook, in JSON, whose first cell installs from the address."""
    if not address:
        return text
    found = json.loads(text)
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            source = source.replace(UNSET, f'ADDRESS = "git+{address}"', 1)
            cell["source"] = source.splitlines(keepends=True)
            break
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"
