"""MODEL -> FAST MODEL: onnxruntime's sessions, one for each segment of an exported model, and their threads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offramp.errors import MissingExtra, ModelError
from offramp.runtime.onnx_folder import Manifest, segment_name

Files = Mapping[str, bytes]
"""The files of an exported model, by name."""


def cores() -> int:
    """The physical cores that this process may use: two threads of one core share its multipliers."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    try:
        place = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
        return len({Path(place.format(cpu)).read_text("utf-8") for cpu in allowed})
    except OSError:
        return len(allowed)


def open_sessions(manifest: Manifest, files: Files, threads: int) -> dict[int, Any]:
    """A session for each segment, by the depth of its exit."""
    return {depth: _session(files[segment_name(depth)], threads) for depth in manifest.exits}


def _session(model: bytes, threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx") from error
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1  # a segment is a chain: no two of its operators can run at once
    options.log_severity_level = 3  # errors
    # Each segment has threads of its own; those of one that is done would keep the next one's from the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes, of no common base
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"onnxruntime cannot load an exported segment: {reason}") from error
