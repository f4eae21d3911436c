"""A search over two fields of a recipe, with texts that count more than others."""

from sklearn.model_selection import GridSearchCV, cross_val_score

from offramp import Classifier
from offramp.data.sources import read
from offramp.demo import data_file

messages = read(data_file("train")).examples[:60]
texts, labels = [message.text for message in messages], [message.label for message in messages]
weights = [2.0 if label == "security" else 1.0 for label in labels]  # each of these counts as two

base = Classifier("ce", settings={"optimise.epochs": 1, "optimise.batch_size": 16}, class_weight="balanced")
print("two folds:", cross_val_score(base, texts, labels, cv=2).round(2))

grid = {"optimise__lr_backbone": [5e-5, 2e-4], "objective__label_smoothing": [0.0]}
search = GridSearchCV(base, grid, cv=2).fit(texts, labels, sample_weight=weights)
print("best:", search.best_params_)
print("answer:", search.predict(["somebody else is in my account"])[0])
