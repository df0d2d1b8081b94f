"""The engine's model of a folder: what its config says, with threads, and a profile if one is wanted."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError, FormatError
from inferometer.core.json_text import parse_json
from inferometer.engines.faults import guard
from inferometer.engines.onnxruntime.faults import engine_words

if TYPE_CHECKING:
    from inferometer.engines.onnxruntime.loading import LoadPlan

CONFIG = "genai_config.json"
_QUIET = 4  # of the engine's levels: fatal errors alone


@dataclass(slots=True, kw_only=True)
class GenaiModel:
    """A loaded model. A profiled one writes what it has run when it goes; what generates with it must go first."""

    model: Any
    profile: Path | None = None  # how the names of its profile begin
    running: Any = None  # what generates at present: it holds the model

    def end_profiling(self) -> str:
        """The file with the profile. The model is gone after it."""
        self.model = self.running = None
        gc.collect()  # what is in cycles holds the session, which writes when it is destroyed
        prefix = self.profile
        files = [] if prefix is None else sorted(prefix.parent.glob(f"{prefix.name}*.json"))
        if not files:
            raise EngineError("ONNX Runtime GenAI left no profile.", remedy="Try another version of onnxruntime-genai.")
        for old in files[:-1]:
            old.unlink()
        return str(files[-1])


def folder_of(path: Path) -> Path:
    """A file of the folder may be given in its place."""
    folder = path.parent if path.is_file() and path.name in {CONFIG, "model.onnx"} else path
    if not (folder / CONFIG).is_file():
        raise FormatError(
            f"{str(path)!r} is no folder of ONNX Runtime GenAI: there is no {CONFIG} in it.",
            remedy="Make one: `inferometer prepare CHECKPOINT --for onnxruntime-genai -o FOLDER`.",
        )
    return folder


def config_of(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = parse_json((folder / CONFIG).read_text(encoding="utf-8"))
        config["model"]["decoder"]["filename"]
        int(config["model"]["vocab_size"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FormatError(
            f"{str(folder / CONFIG)!r} does not describe a decoder: {type(error).__name__} {error}.",
            remedy="Make the folder again: `inferometer prepare CHECKPOINT --for onnxruntime-genai -o FOLDER`.",
        ) from None
    return config


def load_model(folder: Path, plan: LoadPlan, *, profile: Path | None = None) -> GenaiModel:
    """On the CPU, whatever provider the folder's config asks for."""
    import onnxruntime_genai  # noqa: PLC0415 - the engine is imported when a model is opened

    options: dict[str, Any] = {
        "intra_op_num_threads": plan.threads, "inter_op_num_threads": 1, "log_severity_level": _QUIET,
    }  # fmt: skip
    if profile is not None:
        options["enable_profiling"] = str(profile)
    with guard(fault_of, folder, "refused"):
        config = onnxruntime_genai.Config(str(folder))
        config.clear_providers()
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        return GenaiModel(model=onnxruntime_genai.Model(config), profile=profile)


def fault_of(path: Path, doing: str, error: Exception) -> Exception:
    words = engine_words(error)
    if "Failed to allocate memory" in words or "bad_alloc" in words:
        return MemoryError(words)
    return EngineError(
        f"ONNX Runtime GenAI {doing} {str(path)!r}: {words.rstrip('.')}.",
        remedy="Make the folder again with the version that is installed: "
        "`inferometer prepare CHECKPOINT --for onnxruntime-genai -o FOLDER`.",
    )
