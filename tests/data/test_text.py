"""Free text in tables: recognised, encoded on the training split, stored in the model file."""

import numpy as np
import pytest

import plench
from plench.data import load_dataset
from plench.data.encoding import TEXT_WIDTH, TableEncoder, count_inputs
from plench.data.tables import find_kind, make_table, read_frame
from plench.errors import DataError, UsageError
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
    _, messages = make_table(raw, ["x"])
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


def test_many_categories_name_both_remedies(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,candidates\n" + "".join(f"n{i},a|b\n" for i in range(1001)))
    with pytest.raises(DataError, match=r"ignore=x, or read free text with text=x"):
        load_dataset(str(path))


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
