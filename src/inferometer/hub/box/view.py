"""Which paths a job sees: the system's programs and libraries, this Python, its own folder. Nobody's home.

Everything is read-only but the job's own folder and the nodes of devices that compute.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from inferometer.core.frozen import frozen

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store",
    "/run/opengl-driver", "/system", "/vendor", "/apex",
)  # fmt: skip
# Of /etc only what libraries and this machine's description need: no passwords, no keys, no configurations of services.
_ETC = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime",
    "timezone", "os-release", "lsb-release", "debian_version", "machine-id", "hostname", "nv_tegra_release",
    "OpenCL", "vulkan", "glvnd", "nvidia", "cdi", "mime.types", "locale.conf", "host.conf", "gai.conf",
)  # fmt: skip
_KERNEL = ("/sys", "/var/lib/dbus/machine-id")
_DEVICES = (
    "nvidia*", "nvhost*", "nvmap", "nvgpu", "nvsciipc", "dri", "kfd", "accel", "apex_*", "mali*", "galcore", "rknpu*",
    "hailo*", "dma_heap", "dxg", "kgsl-3d0", "adsprpc-smd", "fastrpc-*", "ion", "memryx*", "tenstorrent",
)  # fmt: skip
_PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")
# What an engine is steered by. Everything else stays outside: tokens of other tools are in the environment, too.
_VARIABLES = ("PATH", "LANG", "LANGUAGE", "TZ", "TERM", "LD_LIBRARY_PATH", "OPENVINO_LIB_PATHS", "CC", "CXX")
_VARIABLE_STARTS = (
    "LC_", "PYTHON", "CUDA", "NVIDIA_", "NCCL_", "CUBLAS", "CUDNN", "HIP_", "ROCR_", "ROCM_", "HSA_", "OMP_", "GOMP_",
    "KMP_", "MKL_", "OPENBLAS_", "GGML_", "LLAMA_", "ORT_", "OV_", "TORCH", "PYTORCH", "TRITON", "XNNPACK_", "ONEDNN_",
    "DNNL_", "ONEAPI_", "ZE_", "SYCL_", "TF_", "MALLOC_", "INFEROMETER_",
)  # fmt: skip
_SECRET = frozenset({"INFEROMETER_TOKEN", "INFEROMETER_STORE", "INFEROMETER_HUB", "INFEROMETER_CA", "INFEROMETER_PUSH"})


@frozen
class BoxView:
    """Paths by what may be done with them."""

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    devices: tuple[str, ...]

    def shows(self, path: str) -> bool:
        return any(Path(path).is_relative_to(shown) for shown in (*self.readable, *self.writable, *self.devices))


def view_of(job: Path, own: Path, *, hide: Iterable[str | Path] = (), root: Path = Path("/")) -> BoxView:
    """What a job sees whose files lie in the folder `job` and which may write into `own`."""
    home = Path.home()
    hidden = [home, *map(Path, hide)]
    system = [*_there(root, _SYSTEM), *_there(root / "etc", _ETC), *_there(root, _KERNEL)]
    # A home, or what holds one, is never shown as a whole because somebody has packages in it.
    python = [path for path in _python() if not home.is_relative_to(path)]
    readable = [shown for path in (*system, *python) for shown in _without(path, hidden)]
    devices = [str(found) for name in (*_PLAIN_DEVICES, *_DEVICES) for found in sorted((root / "dev").glob(name))]
    return BoxView(readable=(*_outermost(readable), str(job)), writable=(str(own),), devices=tuple(devices))


def _there(root: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        path = root / name.lstrip("/")
        if path.exists():
            yield path


def _python() -> Iterator[Path]:
    """The Python that runs this, and wherever it finds packages: a checkout of ours may lie anywhere.

    An environment's program is a link, often to another one: of the folders in between only the links are shown.
    """
    executable = Path(sys.executable)
    programs = [str(executable.parent), str(executable.resolve().parent)]
    while executable.is_symlink():
        executable = executable.parent / executable.readlink()
        programs.append(str(executable))
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, *programs, *sys.path]
    for place in places:
        if place and (path := Path(place).absolute()).exists():
            yield path


def _without(path: Path, hidden: list[Path]) -> Iterator[Path]:
    """A path, or if something hidden lies in it, what lies beside that."""
    if path in hidden:
        return
    if not any(secret.is_relative_to(path) for secret in hidden):
        yield path
        return
    try:
        entries = sorted(path.iterdir())
    except OSError:
        return
    for entry in entries:
        yield from _without(entry, hidden)


def _outermost(paths: Iterable[Path]) -> tuple[str, ...]:
    """Each path once, and none that another holds."""
    kept: list[Path] = []
    for path in sorted(set(paths)):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return tuple(map(str, kept))


def environment_in(outside: Mapping[str, str], own: Path, *, shared_memory: bool) -> dict[str, str]:
    """The environment of a job: variables that steer engines, and folders of its own for everything that they keep.

    Without `shared_memory` (/dev/shm) PyTorch's pool of compilers cannot talk, so it compiles by itself.
    """
    kept = {
        name: value
        for name, value in outside.items()
        if name not in _SECRET and (name in _VARIABLES or name.startswith(_VARIABLE_STARTS))
    }
    folders = {
        "HOME": "home", "TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config",
        "XDG_DATA_HOME": "share", "XDG_RUNTIME_DIR": "tmp", "INFEROMETER_CACHE": "cache/inferometer",
        "INFEROMETER_DATA": "data", "TORCHINDUCTOR_CACHE_DIR": "cache/inductor", "TRITON_CACHE_DIR": "cache/triton",
        "CUDA_CACHE_PATH": "cache/cuda",
    }  # fmt: skip
    settings = {
        "INFEROMETER_CONFIG": str(own / "config.toml"),
        "INFEROMETER_TOKEN": "",
        "HF_HUB_OFFLINE": "1",
        **({} if shared_memory else {"TORCHINDUCTOR_COMPILE_THREADS": "1"}),
    }
    return {**kept, **{name: str(own / folder) for name, folder in folders.items()}, **settings}
