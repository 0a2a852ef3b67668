"""Free text in tables: recognised, encoded on the training split, stored in the model file."""

import json
import zipfile
from collections import Counter

import numpy as np
import pytest
import torch

import plench
from plench.data import load_dataset
from plench.data.answers import count_votes, describe_answers
from plench.data.encoding import TEXT_WIDTH, TableEncoder, count_inputs
from plench.data.sources import crowd
from plench.data.tables import find_kind, make_table, read_frame
from plench.errors import DataError, MissingDataError, UsageError
from plench.training.data import TableInputs
from tests.training.harness import Crash, CrashAt, assert_same_run, run

SUBJECTS = {
    "good": ("a great film", "what a lovely story", "very well acted"),
    "bad": ("dull and slow", "a waste of time", "badly written"),
}
WORDS = ["scene", "plot", "music", "actor", "ending", "dialogue", "camera", "pace", "humour", "cast"]


def make_reviews(n, seed=0):
    """Rows of a table whose text tells the class; a third of the candidate sets are ambiguous."""
    rng = np.random.default_rng(seed)
    rows = ["stars,review,genre,candidates,truth"]
    for number in range(n):
        truth = rng.choice(["good", "bad"])
        text = (
            f"{rng.choice(SUBJECTS[truth])} with the {rng.choice(WORDS)} and the {rng.choice(WORDS)} {number}"
        )
        candidates = "good|bad" if rng.random() < 0.33 else truth
        rows.append(f"{rng.normal():.3f},{text},{rng.choice(['drama', 'comedy'])},{candidates},{truth}")
    return "\n".join(rows) + "\n"


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text(make_reviews(240))
    return path


SENTENCES = [f"The {word} was not what we expected" for word in WORDS]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (SENTENCES, "text"),
        (SENTENCES * 5, "text"),  # one row per answer repeats the item's text
        (["我们今天去看电影吧" + sign for sign in "一二三四五六七八九十"], "text"),
        ([f"AB-{number:05d}-x" for number in range(600)], "category"),
        ([f"{number} 12 34 {number}" for number in range(600)], "category"),
        ([f"{name} {number}" for number in range(50) for name in ("Rome", "Oslo")], "category"),
        (["Senior manager of sales", "Head of the whole department", "Does not say"] * 100, "category"),
        (SENTENCES[:5] * 30, "category"),
        (SENTENCES * 40, "category"),
    ],
)
def test_sentences_are_text_and_codes_or_phrases_that_repeat_are_categories(texts, kind):
    raw = read_frame({"x": texts}, "t")
    assert find_kind(raw, "x", list(texts)) == kind
    _, messages = make_table(raw, ["x"], chosen=["x"])
    assert any("is read as text" in message for message in messages) == (kind == "text")


def test_text_is_announced_with_the_option_that_leaves_it_out(reviews):
    dataset = load_dataset(str(reviews))
    assert {column.name: column.kind for column in dataset.features.columns} == {
        "stars": "number",
        "review": "text",
        "genre": "category",
    }
    (announced,) = [text for text in dataset.warnings if "is read as text" in text]
    assert "column 'review' is read as text (240 different values, 9 words on average)" in announced
    assert "ignore=review leaves it out" in announced
    assert load_dataset(f"{reviews}?ignore=review").features.names == ("stars", "genre")


def test_the_option_text_reads_short_texts_and_columns_of_known_names(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("label,candidates\n" + "".join(f"ok {i},a|b\n" for i in range(5)))
    (column,) = load_dataset(f"{path}?text=label").features.columns
    assert (column.kind, column.categories[0]) == ("text", "ok 0")
    with pytest.raises(UsageError, match="text=candidates, but column 'candidates' is not a feature"):
        load_dataset(f"{path}?text=candidates&candidates=candidates&classes=a,b&truth=label")
    with pytest.raises(DataError, match="has no column 'nothing'"):
        load_dataset(f"{path}?text=nothing")


def test_the_encoding_is_learned_from_the_rows_it_is_given_and_keeps_its_bits(reviews):
    features = load_dataset(str(reviews)).features
    first, again = (TableEncoder.fit(features[:200]) for _ in range(2))
    assert first.width == count_inputs(features) == 1 + TEXT_WIDTH + 2
    inputs = first.encode(features)[0]
    assert inputs.tobytes() == again.encode(features)[0].tobytes()
    # What is encoded together does not matter, nor what the table knows besides.
    assert np.allclose(first.encode(features[200:])[0], inputs[200:], atol=1e-6)
    (code,) = [code for code in first.codes if code.kind == "text"]
    assert "239" not in code.words
    assert "great film" in code.words
    restored = TableEncoder.from_state(first.state())
    assert restored.encode(features)[0].tobytes() == inputs.tobytes()


def test_new_words_do_not_become_the_largest_inputs():
    """Components that hardly vary in the training split are not scaled up to the others."""
    texts = [f"colour {n % 13}.{n % 7} with {WORDS[n % 10]} body" for n in range(300)]
    new_texts = ["hue 99.9 without any scent", "colour 3.3 with plot body"]
    train, new = (
        make_table(read_frame({"note": notes}, "X"), ["note"], text=["note"])[0]
        for notes in (texts, new_texts)
    )
    inputs = TableInputs.fit(train)
    usual = inputs.store(train, torch.device("cpu")).abs().max()
    assert inputs.store(new, torch.device("cpu")).abs().max() < 3 * usual


def test_gaps_in_text_have_an_input(tmp_path):
    raw = read_frame({"x": [*SENTENCES, None], "z": ["", *SENTENCES]}, "t")
    table, _ = make_table(raw, ["x", "z"])
    inputs, _ = TableEncoder.fit(table).encode(table)
    assert inputs.shape == (11, 2 * (TEXT_WIDTH + 1))
    assert not inputs[-1, :TEXT_WIDTH].any()
    assert inputs[:, TEXT_WIDTH].tolist() == [0.0] * 10 + [1.0]
    assert inputs[0, -1] == 1


@pytest.mark.parametrize("texts", [["a", "b"], ["!", "?"]])
def test_texts_without_terms_of_a_kind(texts):
    table, _ = make_table(read_frame({"x": texts}, "t"), ["x"], ["x"])
    inputs, _ = TableEncoder.fit(table).encode(table)
    assert np.isfinite(inputs).all()
    assert inputs[0].tolist() != inputs[1].tolist()


def test_a_model_of_text_learns_is_saved_without_pickle_and_predicts_a_file(reviews, tmp_path):
    model = plench.PartialLabelClassifier("LR_EM", steps=20, random_state=0).fit(str(reviews))
    model.save(tmp_path / "model.plench")
    fresh = tmp_path / "new.csv"
    fresh.write_text(make_reviews(100, seed=1))
    truth = [line.split(",")[-1] for line in fresh.read_text().splitlines()[1:]]
    loaded = plench.load(tmp_path / "model.plench")
    predicted = loaded.predict(str(fresh))
    assert np.mean(predicted == np.array(truth)) > 0.9
    assert np.array_equal(loaded.predict_proba(str(fresh)), model.predict_proba(str(fresh)))
    with pytest.raises(DataError, match="has no column 'review'"):
        loaded.predict({"stars": [1.0], "genre": ["drama"]})


def test_a_run_on_text_resumes_with_the_same_bits(reviews, tmp_path):
    options = {"dataset": load_dataset(str(reviews))}
    whole = run(tmp_path / "whole", **options)
    with pytest.raises(Crash):
        run(tmp_path / "part", callback=CrashAt(40), **options)
    resumed = run(tmp_path / "part", **options)
    assert resumed.updates_made < whole.updates_made
    assert_same_run(whole.folder, resumed.folder)


def write_emotionlines(folder, **changes):
    """Write a small release: six utterances, of which two have one key and one is not in MELD."""
    said = {
        "train": [
            ("Joey", "How you\u2019doin?", "2300000"),
            ("Ross", "Hi.", "5000000"),
            ("Ross", "HI", "0500000"),
        ],
        "dev": [("Monica", "None", "1110011"), ("Gunther", "Closing time!", "5000000")],
        "test": [("Phoebe", "Oh my God!", "0000050")],
    }
    labels = {
        "train": [("Joey", "How you doin?", "joy"), ("Ross", "Hi", "sadness")],
        "dev": [("Monica", "None", "fear"), ("Rachel", "No, no!", "disgust"), ("Rachel", "no no", "anger")],
        "test": [("Phoebe", "Oh my God", "surprise")],
    }
    folder.mkdir()
    with zipfile.ZipFile(folder / "2018_EmotionX.zip", "w") as archive:
        for part, entries in said.items():
            keys = ("speaker", "utterance", "annotation")
            dialogue = [dict(zip(keys, entry, strict=True), emotion="neutral") for entry in entries]
            archive.writestr(
                f"friends.{part}.json", changes.get(part, json.dumps([dialogue[:1], dialogue[1:]]))
            )
    for part, entries in labels.items():
        rows = [f'{speaker},"{text}",{emotion}' for speaker, text, emotion in entries]
        content = "\n".join(["Speaker,Utterance,Emotion", *rows])
        (folder / f"{part}_sent_emo.csv").write_text(content.replace(*changes.get("emotion", ("", ""))))


def test_emotionlines_matches_votes_and_truth_by_what_was_said(tmp_path):
    write_emotionlines(tmp_path / "emotionlines")
    dataset = load_dataset("emotion lines", tmp_path)
    (column,) = dataset.features.columns
    assert (column.name, column.kind) == ("text", "text")
    assert [column.categories[code] for code in column.values] == ["How you\u2019doin?", "None"]
    assert dataset.labels.tolist() == [1, 3]
    assert dataset.class_names[:2] == ("neutral", "joy")
    assert count_votes(dataset.answers).tolist() == [[2, 3, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 1, 1]]
    assert dataset.candidates.sum(1).tolist() == [2, 5]
    assert dataset.noise_rate == 0.5
    assert dataset.test.labels.tolist() == [5]
    assert dataset.answers.anonymous
    stats = describe_answers(dataset.answers)
    assert (stats["n_answers"], stats["n_annotators"], stats["answers_per_annotator"]) == (10, 0, {})
    assert len(dataset.warnings) == 4
    assert not dataset.verified
    assert load_dataset("EmotionLines_Votes_3", tmp_path).candidates.sum(1).tolist() == [1, 5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": "[[{"}, "2018_EmotionX.zip cannot be read"),
        ({"test": '[[{"speaker": "A", "utterance": "B", "annotation": "50"}]]'}, "must have 7 digits"),
        ({"test": "[]"}, "no utterance of 2018_EmotionX.zip is in the files of MELD"),
        ({"emotion": ("surprise", "boredom")}, "unknown emotion 'boredom'; expected one of neutral"),
        ({"emotion": ("Emotion", "Feeling")}, "has no column 'Emotion'"),
    ],
)
def test_broken_files_of_emotionlines(tmp_path, changes, message):
    write_emotionlines(tmp_path / "emotionlines", **changes)
    with pytest.raises(DataError, match=message):
        load_dataset("EmotionLines", tmp_path)


def test_the_facts_of_emotionlines(real_data):
    dataset = load_dataset("EmotionLines", real_data / "text")
    assert dataset.verified
    assert (dataset.n_examples, len(dataset.test.labels)) == (8_828 + 983, 2_306)
    truth = np.bincount(np.concatenate([dataset.labels, dataset.test.labels]))
    counts = dict(zip(dataset.class_names, truth.tolist(), strict=True))
    assert counts == {
        "neutral": 5663, "joy": 2021, "anger": 1483, "surprise": 1317, "sadness": 949, "disgust": 348,
        "fear": 336,
    }  # fmt: skip
    assert set(count_votes(dataset.answers).sum(1)) == {5}
    # The published figures count the test set too, whose votes are not part of the dataset.
    folder = real_data / "text" / "emotionlines"
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    said = crowd.read_utterances(files[crowd.ARCHIVE], "EmotionLines")
    assert len(said) == 14_503
    times = Counter(each.key for each in said)
    labels = crowd.read_emotions(files, "EmotionLines")
    matched = [each for each in said if each.key in labels and times[each.key] == 1]
    assert len(matched) == 12_117
    sets = np.array([each.votes for each in matched]) > 0
    assert sets.sum(1).mean() == pytest.approx(2.268, abs=5e-4)
    missed = ~sets[np.arange(len(sets)), [labels[each.key] for each in matched]]
    assert missed.mean() == pytest.approx(0.0666, abs=5e-5)


def test_two_datasets_with_an_answers_file_share_a_data_folder(tmp_path):
    for name in ("labelme", "sentiment"):
        (tmp_path / name).mkdir()
    files = {
        "Sentiment_text_train.txt": "a fine film \nnone\ndull",  # no newline at the end, as published
        "Sentiment_text_test.txt": "Fine\nDull\n",
        "Sentiment_Z_train.txt": "1\n0\n0\n",
        "Sentiment_Z_test.txt": "1\n0\n",
        "answers.txt": "1 -1 1\n0 1 -1\n-1 -1 -1\n",
    }
    for file, content in files.items():
        (tmp_path / "sentiment" / file).write_text(content)
    (tmp_path / "labelme" / "answers.txt").write_text("7 7\n")
    dataset = load_dataset("SentimentPolarity", tmp_path)
    (column,) = dataset.features.columns
    assert [column.categories[code] for code in column.values] == ["a fine film", "none", "dull"]
    assert dataset.candidates.tolist() == [[False, True], [True, True], [True, True]]
    assert dataset.labels.tolist() == [1, 0, 0]
    assert dataset.answers.annotator.tolist() == [0, 2, 0, 1]
    assert not dataset.answers.anonymous
    assert len(dataset.test.features) == 2
    (tmp_path / "sentiment" / "Sentiment_Z_test.txt").unlink()
    with pytest.raises(MissingDataError, match="plench data download SentimentPolarity"):
        load_dataset("SentimentPolarity", tmp_path)
