"""A classifier that Hugging Face fine-tuned gets exits below its head; at full depth its answers stay as they are."""

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from offramp import Classifier
from offramp.data.sources import read
from offramp.demo import data_file
from offramp.encoder.load import locate

QUEUES = ("app_bug", "billing", "delivery")
short = [message for message in read(data_file("train")).examples if len(message.text) < 200]
messages = [message for message in short if message.label in QUEUES][:120]
texts, labels = [message.text for message in messages], [str(message.label) for message in messages]

# Somebody's classifier, made as Hugging Face makes it. Yours is a folder already, or a name on the hub.
backbone = locate("minilm-l6").name
tokenizer = AutoTokenizer.from_pretrained(backbone)
theirs = AutoModelForSequenceClassification.from_pretrained(
    backbone, id2label=dict(enumerate(QUEUES)), label2id={queue: number for number, queue in enumerate(QUEUES)}
)
tokens = tokenizer(texts, truncation=True, max_length=256, padding=True, return_tensors="pt")
truth = torch.tensor([QUEUES.index(label) for label in labels])
optimiser = torch.optim.AdamW(theirs.parameters(), lr=2e-4)
theirs.train()
for _ in range(2):
    for rows in torch.randperm(len(texts)).split(12):
        optimiser.zero_grad()
        theirs(**{name: value[rows] for name, value in tokens.items()}, labels=truth[rows]).loss.backward()
        optimiser.step()
theirs.eval()
theirs.save_pretrained("their-classifier")
tokenizer.save_pretrained("their-classifier")

# Exits for it. The backbone stands still: it runs once for each text, and only the exits below the head learn.
grown = Classifier("grow", backbone="their-classifier", settings={"stage2.least_updates": 60}).fit(texts, labels)
with torch.no_grad():
    before = theirs(**tokens).logits.softmax(dim=1)
same = torch.allclose(before, torch.tensor(grown.predict_proba(texts)), atol=1e-4)
print("the same probabilities at full depth:", same)

grown.set_params(policy="confidence", threshold=0.6)
new = ["where is my parcel", "charged twice this month", "the app closes on me"]
for text, answer in zip(new, grown.decide(new), strict=True):
    print(f"{answer.label:<10} depth {answer.depth}  {text}")
