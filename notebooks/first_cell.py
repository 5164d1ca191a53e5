import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ADDRESS = ""  # where the project is published, which `make site ADDRESS=...` sets
NEEDED = "specjax", "gin", "matplotlib", "tokenizers", "soundfile", "soxr", "optax"
if not all(map(importlib.util.find_spec, NEEDED)):
    checkout = [p for p in Path("x").resolve().parents if (p / "specjax/zoo").is_dir()]
    source = os.environ.get("SPECJAX_SOURCE") or str((*checkout, ADDRESS)[0])
    if not source:
        sys.exit("set SPECJAX_SOURCE to a wheel of specjax, or to git+https://...")
    url = source if "://" in source else Path(source).resolve().as_uri()
    device = ""
    if cuda := re.search(r"CUDA Version: (\d+)", subprocess.getoutput("nvidia-smi")):
        device = ",cuda" if int(cuda[1]) > 12 else ",cuda12"
    elif any(x[:4] == "TPU_" for x in os.environ) or [*Path("/dev").glob("accel*")]:
        device = ",tpu"
    wanted = f"specjax[notebooks{device}] @ {url}"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", wanted], check=True)
