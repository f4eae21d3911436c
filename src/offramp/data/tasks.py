"""TEXT -> TOKENS, tasks: the data sets of the papers by name, with their labels and their official metric.

`task:NAME` is a source like a file: `offramp train task:rte`, `read("task:rte/validation")`. The texts come from the
folder that `OFFRAMP_DATA` names, laid out as NAME/SPLIT.parquet, and without it from the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offramp.data.long_labels import BANKING77, IFLYTEK
from offramp.errors import unknown_name

if TYPE_CHECKING:
    from offramp.data.sources import Table


@dataclass(frozen=True)
class Hub:
    """Where a split can be fetched: a data set on the hub, or one file of JSON lines."""

    path: str
    split: str = "train"
    columns: tuple[str, ...] = ("text",)  # of the texts there, in our order; two of them for one text are joined
    label: str = "label"
    config: str | None = None
    revision: str | None = None
    file: str | None = None  # address of a file, for the path `json`


@dataclass(frozen=True)
class Task:
    """A data set with a name: what its texts and labels are, how it is scored, where it lies."""

    name: str
    about: str
    labels: tuple[str, ...]  # by class number; of two, the second is the positive one
    columns: tuple[str, ...] = ("sentence",)  # or the two of a pair
    metric: str = "accuracy"
    chinese: bool = False
    test: str = "test"  # the split that is scored: validation, where the test labels are not public
    hub: Mapping[str, Hub] = field(default_factory=dict)  # by our name of the split


def task(name: str) -> Task:
    """The task of this name."""
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    return TASKS[name]


def load_task(name: str, split: str = "train") -> Table:
    """A split of a task, its labels by name: from `OFFRAMP_DATA`, or from the hub where that is not set."""
    from offramp.data.sources import read  # which reads tasks too

    return read(f"task:{task(name).name}/{split}")


def _on_hub(
    path: str,
    columns: tuple[str, ...] = ("text",),
    splits: tuple[str, ...] = ("train", "test"),
    label: str = "label",
    config: str | None = None,
    revision: str | None = None,
) -> dict[str, Hub]:
    """The same data set for each of these splits, which have the same names there."""
    return {split: Hub(path, split, columns, label, config, revision) for split in splits}


def _glue(config: str, columns: tuple[str, ...]) -> dict[str, Hub]:
    return _on_hub("nyu-mll/glue", columns, ("train", "validation"), config=config)


def _clue(config: str, columns: tuple[str, ...]) -> dict[str, Hub]:
    return _on_hub("clue/clue", columns, ("train", "validation"), config=config)


def _few_clue(name: str, columns: tuple[str, ...]) -> dict[str, Hub]:
    place = f"https://raw.githubusercontent.com/CLUEbenchmark/FewCLUE/main/datasets/{name}"
    files = {"train": "train_few_all", "validation": "dev_few_all", "test": "test_public"}
    return {split: Hub("json", columns=columns, file=f"{place}/{file}.json") for split, file in files.items()}


PAIR = ("sentence1", "sentence2")
CONVERTED = "refs/convert/parquet"  # the hub's own copy of a data set that is a script, which is never run
ENTAILMENT = ("entailment", "neutral", "contradiction")
SENTIMENT = ("negative", "positive")
TNEWS = (
    "news_story", "news_culture", "news_entertainment", "news_sports", "news_finance", "news_house", "news_car",
    "news_edu", "news_tech", "news_military", "news_travel", "news_world", "news_stock", "news_agriculture",
    "news_game",
)  # fmt: skip
DBPEDIA = (
    "Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder", "MeanOfTransportation", "Building",
    "NaturalPlace", "Village", "Animal", "Plant", "Album", "Film", "WrittenWork",
)  # fmt: skip

_ALL = (
    # GLUE
    Task(
        "rte", "Does the first text entail the second?", ("entailment", "not_entailment"), PAIR,
        test="validation", hub=_glue("rte", PAIR),
    ),
    Task(
        "mrpc", "Do two sentences of the news mean the same?", ("not_equivalent", "equivalent"), PAIR, "f1",
        hub=_on_hub("nyu-mll/glue", PAIR, ("train", "validation", "test"), config="mrpc"),
    ),
    Task(
        "cola", "Is the sentence grammatical?", ("unacceptable", "acceptable"), metric="mcc",
        test="validation", hub=_glue("cola", ("sentence",)),
    ),
    Task(
        "sst2", "Is a phrase about a film positive?", SENTIMENT,
        hub={**_glue("sst2", ("sentence",)), "test": Hub("SetFit/sst2", "test")},  # GLUE hides the labels of its own
    ),
    Task(
        "qnli", "Does the sentence hold the answer to the question?", ("entailment", "not_entailment"), PAIR,
        test="validation", hub=_glue("qnli", ("question", "sentence")),
    ),
    Task(
        "qqp", "Do two questions ask the same?", ("not_duplicate", "duplicate"), PAIR, "f1",
        test="validation", hub=_glue("qqp", ("question1", "question2")),
    ),
    Task(
        "mnli", "Entailment over many kinds of text, three answers.", ENTAILMENT, PAIR,
        test="validation",
        hub={
            "train": Hub("nyu-mll/glue", "train", ("premise", "hypothesis"), config="mnli"),
            "validation": Hub("nyu-mll/glue", "validation_matched", ("premise", "hypothesis"), config="mnli"),
            "mismatched": Hub("nyu-mll/glue", "validation_mismatched", ("premise", "hypothesis"), config="mnli"),
        },
    ),
    Task(
        "wnli", "Does the sentence with its pronoun resolved follow?", ("not_entailment", "entailment"), PAIR,
        test="validation", hub=_glue("wnli", PAIR),
    ),
    # CLUE
    Task(
        "tnews", "Headlines, 15 sections.", TNEWS, chinese=True,
        test="validation", hub=_clue("tnews", ("sentence",)),
    ),
    Task(
        "afqmc", "Do two questions to a bank ask the same?", ("not_equivalent", "equivalent"), PAIR, chinese=True,
        test="validation", hub=_clue("afqmc", PAIR),
    ),
    Task(
        "ocnli", "Entailment, written in Chinese.", ENTAILMENT, PAIR, chinese=True,
        test="validation", hub=_clue("ocnli", PAIR),
    ),
    Task(
        "cmnli", "Entailment, translated into Chinese.", ENTAILMENT, PAIR, chinese=True,
        test="validation", hub=_clue("cmnli", PAIR),
    ),
    Task(
        "iflytek", "Descriptions of apps, 119 kinds.", IFLYTEK, chinese=True,
        test="validation", hub=_clue("iflytek", ("sentence",)),
    ),
    # FewCLUE
    Task(
        "eprstmt", "Is a review of a product positive?", ("Negative", "Positive"), chinese=True,
        hub=_few_clue("eprstmt", ("sentence",)),
    ),
    Task(
        "bustm", "Do two sentences to a voice assistant mean the same?", ("not_equivalent", "equivalent"), PAIR,
        chinese=True, hub=_few_clue("bustm", PAIR),
    ),
    # others
    Task(
        "dbpedia14", "Abstracts of articles, 14 kinds of things.", DBPEDIA,
        hub=_on_hub("fancyzhx/dbpedia_14", ("content",)),
    ),
    Task(
        "amazon_polarity", "Is a review of a product positive?", SENTIMENT,
        hub=_on_hub("fancyzhx/amazon_polarity", ("title", "content")),
    ),
    Task("yelp_polarity", "Is a review of a place positive?", SENTIMENT, hub=_on_hub("fancyzhx/yelp_polarity")),
    Task(
        "yelp_review_full", "How many stars has the review?", ("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
        hub=_on_hub("Yelp/yelp_review_full"),
    ),
    Task(
        "ag_news", "News, 4 sections.", ("World", "Sports", "Business", "Sci/Tech"),
        hub=_on_hub("fancyzhx/ag_news"),
    ),
    Task(
        "trec6", "Questions, 6 kinds of answers.", ("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"),
        hub=_on_hub("CogComp/trec", label="coarse_label", revision=CONVERTED),
    ),
    Task(
        "banking77", "Messages to a bank, 77 intents.", BANKING77,
        hub=_on_hub("PolyAI/banking77", revision=CONVERTED),
    ),
    Task(
        "rotten_tomatoes", "Is a sentence of a film review positive?", SENTIMENT,
        hub=_on_hub("cornell-movie-review-data/rotten_tomatoes", splits=("train", "validation", "test")),
    ),
)  # fmt: skip

TASKS: dict[str, Task] = {found.name: found for found in _ALL}
"""The tasks by name."""
