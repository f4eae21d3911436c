"""Three objectives on the same few texts and seeds: is the difference larger than that between two seeds?"""

from statistics import mean, stdev

from offramp import Classifier
from offramp.data.sources import read
from offramp.demo import data_file

QUEUES = ("billing", "delivery", "app_bug")
RECIPES, SEEDS = ("ce", "acl", "lacon"), (0, 1)


def messages(part: str, most: int) -> tuple[list[str], list[str]]:
    """Texts of three queues, and their labels."""
    found = [message for message in read(data_file(part)).examples if message.label in QUEUES][:most]
    return [message.text for message in found], [str(message.label) for message in found]


train, held_out, test = messages("train", 30), messages("validation", 12), messages("test", 40)
settings = {"optimise.epochs": 2, "optimise.batch_size": 12}
scores: dict[str, list[float]] = {}
for recipe in RECIPES:
    for seed in SEEDS:
        classifier = Classifier(recipe, seed=seed, settings=settings).fit(*train, validation=held_out)
        scores.setdefault(recipe, []).append(classifier.score(*test))

print(f"accuracy on {len(test[0])} texts after {len(train[0])}, over {len(SEEDS)} seeds:")
for recipe, found in scores.items():
    print(f"{recipe:<6} mean {mean(found):.3f}  deviation {stdev(found):.3f}")
best = max(scores, key=lambda recipe: mean(scores[recipe]))
apart = mean(scores[best]) - mean(scores["ce"])
spread = max(stdev(found) for found in scores.values())
print(f"{best} is {apart:.3f} above ce; two seeds of one recipe are up to {spread:.3f} apart.")
print("Two seeds and so few texts decide nothing: `offramp study run objectives` is the comparison in earnest.")
