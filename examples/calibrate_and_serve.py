"""Train, calibrate, serve on a free port, and ask the server as a client would."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from offramp import Classifier
from offramp.data.sources import Table, read
from offramp.demo import data_file

QUEUES = ("billing", "delivery", "app_bug")


def messages(part: str) -> Table:
    """Built-in messages of three queues."""
    table = read(data_file(part))
    return table.keep([row for row, message in enumerate(table.examples) if message.label in QUEUES])


train, held_out = messages("train"), messages("calibration")
settings = {"data.cap": 150, "optimise.epochs": 4, "optimise.batch_size": 16}
classifier = Classifier("jt", settings=settings)
classifier.fit_table(train)
certificate = classifier.calibrate(held_out, max_drop=0.1, policy="confidence")
print(certificate.promises())
classifier.save(Path("my-model"))

command = [sys.executable, "-m", "offramp", "serve", "my-model", "--port", "0"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as server:
    assert server.stdout is not None
    address = next(line for line in server.stdout if line.startswith("Serving at")).split()[-1]
    try:
        question = {"texts": ["where is my parcel", "you charged me twice", "it closes as soon as I open it"]}
        request = urllib.request.Request(
            f"{address}/predict", json.dumps(question).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request) as reply:
            found = json.load(reply)
        for text, answer in zip(question["texts"], found["answers"], strict=True):
            print(f"{answer['label']:<10} depth {answer['depth']} of {found['layers']}  {text}")
        with urllib.request.urlopen(f"{address}/model") as reply:
            print("certificate of the server:", json.load(reply)["certificate_state"])
    finally:
        server.terminate()  # it answers what it has accepted, and ends
