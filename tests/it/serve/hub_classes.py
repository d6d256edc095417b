"""Loads a model's configuration and tokenizer with transformers, and a dataset with datasets, from `fhrd serve`.

hub_classes.py make DIRECTORY: writes DIRECTORY/classes (a model without weights) and DIRECTORY/tables (a dataset).
hub_classes.py load DIRECTORY ENDPOINT: they are published as me/classes and me/tables, and must give what the files give.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

verb, directory, *endpoint = sys.argv[1:]
os.environ |= {"HF_HOME": tempfile.mkdtemp(), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
if endpoint:
    os.environ["HF_ENDPOINT"] = endpoint[0]

import datasets  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoConfig, AutoTokenizer, BertConfig, BertTokenizerFast, GenerationConfig  # noqa: E402

model, tables = Path(directory) / "classes", Path(directory) / "tables"
SENTENCE = "the quick brown fox jumps over the lazy dog"


def make():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(SENTENCE.split()))]
    model.mkdir()
    (model / "vocab.txt").write_text("\n".join(words))
    BertConfig(vocab_size=len(words), hidden_size=32, num_attention_heads=4, num_hidden_layers=2).save_pretrained(model)
    tokenizer = BertTokenizerFast(vocab=str(model / "vocab.txt"))
    tokenizer.save_pretrained(model)
    GenerationConfig(max_length=77).save_pretrained(model)
    tables.mkdir()
    rows = [{"number": number, "text": f"row {number}", "half": number / 2} for number in range(5000)]
    (tables / "README.md").write_text("---\nlicense: mit\n---\n# Tables\n")
    (tables / "data").mkdir()
    (tables / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    datasets.Dataset.from_list(rows[:100]).to_parquet(tables / "data" / "test.parquet")


def configuration():
    loaded = AutoConfig.from_pretrained("me/classes")
    assert loaded.to_dict() | {"_name_or_path": ""} == AutoConfig.from_pretrained(model).to_dict() | {"_name_or_path": ""}
    assert GenerationConfig.from_pretrained("me/classes").max_length == 77


def tokenizer():
    loaded, local = AutoTokenizer.from_pretrained("me/classes"), AutoTokenizer.from_pretrained(model)
    numbers = loaded(SENTENCE)["input_ids"]
    assert numbers == local(SENTENCE)["input_ids"] and len(set(numbers)) > 8, numbers
    assert loaded.get_vocab() == local.get_vocab()
    assert AutoTokenizer.from_pretrained("me/classes", revision="main")(SENTENCE)["input_ids"] == numbers


def rows():
    files = {"train": "data/train.jsonl"}
    local = datasets.load_dataset("json", data_files={"train": str(tables / "data" / "train.jsonl")}, split="train")
    loaded = datasets.load_dataset("me/tables", data_files=files, split="train")
    assert loaded.num_rows == 5000 and loaded.to_list() == local.to_list()


def parquet():
    loaded = datasets.load_dataset("me/tables", data_files={"test": "data/test.parquet"}, split="test")
    assert loaded.to_list() == datasets.Dataset.from_parquet(str(tables / "data" / "test.parquet")).to_list()


def streaming():
    loaded = datasets.load_dataset("me/tables", data_files={"train": "data/train.jsonl"}, split="train", streaming=True)
    first = list(loaded.take(3))
    assert [row["number"] for row in first] == [0, 1, 2], first


def absent():
    try:
        AutoConfig.from_pretrained("me/none")
    except OSError as error:
        assert "me/none" in str(error), error
    else:
        raise AssertionError("a model that is not there was loaded")


if verb == "make":
    make()
else:
    print("transformers", transformers.__version__, "datasets", datasets.__version__)
    for step in [configuration, tokenizer, rows, parquet, streaming, absent]:
        step()
        print(step.__name__, flush=True)
