"""Trains in processes forked from one that has imported everything already.

Such a run starts at once, and is a process like any other: it can be killed, and its disk can be full. A line of JSON
comes in for each run; its process id goes out, and when it has ended, its exit code, negative for a signal.

    arguments  the command line's; or
    fit        what `Classifier` takes, and `data`, the file to train on; `resume`, `overwrite`
    out        folder of the run; the changes it makes to files there are its *moments*
    kill_at    moment before which it gets SIGKILL: its number, counted from 1, or a pattern of what happens; 0: none
    moments    file to which the moments are written
    output     file for its standard output and standard error
    room       largest file it may write, in bytes; 0: any. A write beyond fails as on a full disk.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")
LATE = (  # what a run would import by and by
    "offramp.classifier",
    "offramp.cli",
    "torch.utils.tensorboard",
    "transformers.models.bert.modeling_bert",
    "transformers.models.bert.tokenization_bert",
)


def main() -> None:
    import torch

    for name in LATE:
        import_module(name)
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        process = os.fork()
        if process == 0:
            run(request)
        print(process, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(request: dict[str, Any]) -> None:
    """The forked process; it does not return."""
    nowhere, output = (
        os.open(os.devnull, os.O_RDONLY),
        os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    )
    for source, target in ((nowhere, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    if request["room"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["room"], resource.RLIM_INFINITY))
    # TensorBoard's thread hands its error to the main thread, and prints it too, in the middle of what others print.
    threading.excepthook = lambda _: None
    moments: list[str] = []
    sys.addaudithook(watch(request["out"], request["kill_at"], moments))
    code = 0
    try:
        work(request)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        traceback.print_exc()
        code = 1
    if not request["room"]:
        Path(request["moments"]).write_text(json.dumps(moments), "utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def work(request: dict[str, Any]) -> None:
    from offramp.classifier import Classifier
    from offramp.cli import main as command_line
    from offramp.data.sources import columns, read

    if request["arguments"]:
        sys.argv = ["offramp", *request["arguments"]]
        command_line()
    given = dict(request["fit"])
    data, how = given.pop("data"), {key: given.pop(key, False) for key in ("resume", "overwrite")}
    classifier = Classifier(**given)
    table = read(data, **columns(classifier.config().data))
    classifier.fit_table(table, folder=Path(request["out"]), **how)


def watch(out: str, kill_at: int | str, moments: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook: Python tells it of every change to a file before making it."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in CHANGES:
            return
        path = str(arguments[0])
        if event in ("os.remove", "os.rmdir") and arguments[1] >= 0:  # relative to a folder that is open
            path = f"{os.readlink(f'/proc/self/fd/{arguments[1]}')}/{path}"
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            event = "flush"  # or read; either way, whatever came before is done
        if path.startswith(out):
            moments.append(f"{event} {Path(path).relative_to(out)}")
            if len(moments) == kill_at or fnmatch(moments[-1], str(kill_at)):
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


if __name__ == "__main__":
    main()
