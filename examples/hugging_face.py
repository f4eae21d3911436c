"""Hugging Face's `Trainer` trains every exit; a pipeline lets texts leave at the first one that is sure."""

from dataclasses import replace

from datasets import Dataset
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments, pipeline

from offramp import Classifier
from offramp.config import PolicyConfig
from offramp.data.sources import read
from offramp.demo import data_file
from offramp.hugging_face import compute_metrics, model_to_train

messages = read(data_file("train")).examples[:200]
names = sorted({str(message.label) for message in messages})
model, tokenizer = model_to_train(names, recipe="jt")

rows = Dataset.from_dict({"text": [m.text for m in messages], "labels": [names.index(str(m.label)) for m in messages]})
rows = rows.map(lambda row: tokenizer(row["text"], truncation=True, max_length=64), remove_columns=["text"])
parts = rows.train_test_split(test_size=40, seed=0)

arguments = TrainingArguments(
    "trainer", num_train_epochs=2, learning_rate=2e-4, report_to=[], save_strategy="no", disable_tqdm=True,
    dataloader_pin_memory=False,
)  # fmt: skip
trainer = Trainer(
    model,
    arguments,
    train_dataset=parts["train"],
    eval_dataset=parts["test"],
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=compute_metrics,
)
trainer.train()
print("accuracy of the last exit:", trainer.evaluate()["eval_accuracy"])

classifier = Classifier.of(model, tokenizer, seen=[m.text for m in messages])  # not to be calibrated on
classifier.config_ = replace(classifier.config_, policy=PolicyConfig("confidence", 0.5))
classifier.save("my-model")
classify = pipeline("text-classification", model="my-model", device="cpu")
print(classify(["was charged twice this month", "the parcel never came"]))
