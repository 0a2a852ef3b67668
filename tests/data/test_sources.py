import dataclasses
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import savemat

from plench.data import CandidateSpec, Sizes, dataset_card, dataset_names, draw_candidates, load_dataset
from plench.data.sources import find_source
from plench.data.sources.base import compare_published
from plench.errors import DataError, UsageError

LONG = ["SoccerPlayer", "Italian", "YahooNews", "English"]
BENCHMARK = ["Lost", "MSRCv2", "Mirflickr", "Birdsong", "Malagasy", *LONG]


def write_mat(path, n=20, with_target=True, kind=sparse.csc_matrix, **options):
    labels = np.arange(n) % 4
    target = (np.arange(4)[:, None] == labels).astype(float)
    variables = {"data": np.arange(3.0 * n).reshape(n, 3), "partial_target": kind(target)}
    if with_target:
        variables["target"] = kind(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, variables, **options)
    return path


def test_the_tabular_benchmark_and_the_digits_are_known():
    assert set(BENCHMARK) <= set(dataset_names())
    assert {"FGNET", "Digits_USS", "Digits_FPS", "Digits_ID"} <= set(dataset_names())
    assert dataset_names() == sorted(dataset_names(), key=str.lower)


@pytest.mark.parametrize("name", BENCHMARK)
def test_cards_carry_the_protocols_steps_and_the_papers_table(name):
    card = dataset_card(name)
    assert card.default_steps == (20_000 if name in LONG else 10_000)
    assert card.kind == "tabular"
    assert card.published is not None
    assert card.protocol_noise_rate is None
    assert card.candidates == CandidateSpec("real")


@pytest.mark.parametrize("name", dataset_names())
def test_every_card_says_where_the_data_come_from(name):
    card = dataset_card(name)
    assert card.name == name
    assert all([card.task, card.source, card.terms, card.citation])
    assert card.default_steps > 0


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("soccer player", "SoccerPlayer"),
        ("yahoo! news", "YahooNews"),
        ("BIRDSONG", "Birdsong"),
        ("fg-net", "FGNET"),
    ],
)
def test_names_are_found_in_any_spelling(spelling, name):
    assert dataset_card(spelling).name == name


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="unknown dataset 'Lots'; did you mean Lost"):
        load_dataset("Lots")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("lost.mat", "Lost"),
        ("LOST.MAT", "Lost"),
        ("Soccer Player.mat", "SoccerPlayer"),
        ("soccer_player.mat", "SoccerPlayer"),
        ("Yahoo! News.mat", "YahooNews"),
        ("sub folder/BirdSong.mat", "Birdsong"),
        ("FG-NET.mat", "FGNET"),
        ("English.mat", "English"),
    ],
)
def test_files_are_found_regardless_of_case_spaces_and_punctuation(tmp_path, file, name):
    write_mat(tmp_path / file)
    dataset = load_dataset(name, tmp_path)
    assert dataset.input_shape == (20, 3)
    assert dataset.candidates.sum() == 20
    assert dataset.labels.tolist() == [0, 1, 2, 3] * 5


def test_differences_from_what_is_known_are_notices(tmp_path):
    write_mat(tmp_path / "lost.mat")
    notices = load_dataset("Lost", tmp_path).warnings
    assert notices == (
        "Lost: lost.mat is not the public file (its git SHA-1 differs)",
        "Lost has 20 examples; published are 1,122",
        "Lost has 3 features; published are 108",
        "Lost has 4 classes; published are 16",
        "Lost has 1.0000 candidates on average; published are 2.23",
    )
    write_mat(tmp_path / "English.mat")
    assert (
        "English has a noise rate of 0.0000%; published are 0.97%"
        in load_dataset("English", tmp_path).warnings
    )


def test_a_file_without_true_labels_loads_with_a_notice(tmp_path):
    write_mat(tmp_path / "FG-NET.mat", with_target=False)
    dataset = load_dataset("FGNET", tmp_path)
    assert dataset.labels is None
    assert "FGNET: FG-NET.mat has no true labels (`target`): accuracy is not measured" in dataset.warnings
    with pytest.raises(DataError, match="FGNET has no true labels"):
        draw_candidates(dataset, CandidateSpec("uss"), 0)


def test_rounding_is_no_difference():
    dataset = load_dataset("Digits_USS")
    figures = dataset_card("Lost").published
    published = dataclasses.replace(figures, examples=1797, features=64, classes=10, mean_candidates=1.005)
    card = dataclasses.replace(dataset.card, published=published)
    assert compare_published(dataclasses.replace(dataset, card=card)) == []
    far = dataclasses.replace(card, published=dataclasses.replace(published, mean_candidates=1.01))
    assert len(compare_published(dataclasses.replace(dataset, card=far))) == 1


def test_a_missing_file_says_where_to_get_it_and_where_to_put_it(tmp_path):
    with pytest.raises(DataError) as caught:
        load_dataset("yahoonews", tmp_path)
    text = str(caught.value)
    assert "plench data download YahooNews --data-dir" in text
    assert "/a43c823f1cf2575e7fc74bcdfc307463e0bd44bd/Yahoo%21%20News.mat" in text
    assert f"put it into {tmp_path}" in text
    with pytest.raises(DataError, match=r"no public raw file is known: get English.mat from palm.seu.edu.cn"):
        load_dataset("English", tmp_path)
    with pytest.raises(DataError, match="name its folder with --data-dir"):
        load_dataset("Lost")
    with pytest.raises(DataError, match=r"absent cannot be read .*it should contain lost.mat"):
        load_dataset("Lost", tmp_path / "absent")


def test_two_files_of_one_name_are_refused_and_the_folder_itself_goes_first(tmp_path):
    write_mat(tmp_path / "a" / "lost.mat")
    write_mat(tmp_path / "b" / "Lost.mat")
    with pytest.raises(DataError, match="several files match"):
        load_dataset("Lost", tmp_path)
    write_mat(tmp_path / "lost.mat", n=24)
    assert load_dataset("Lost", tmp_path).n_examples == 24


def test_hidden_files_do_not_count(tmp_path):
    write_mat(tmp_path / "lost.mat")
    (tmp_path / "._lost.mat").write_bytes(b"what one system puts beside every file on a foreign disk")
    assert load_dataset("Lost", tmp_path).n_examples == 20
    (tmp_path / "lost.mat").unlink()
    write_mat(tmp_path / ".trash" / "lost.mat")
    with pytest.raises(DataError, match="neither in"):
        load_dataset("Lost", tmp_path)


def test_a_folder_that_cannot_be_read_hides_no_other(tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    closed.mkdir()
    list_folder = Path.iterdir

    def refuse(folder):
        if folder == closed:
            raise PermissionError(13, "Permission denied")
        return list_folder(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(
        DataError, match=r"lost\.mat is neither in .* \(.*closed cannot be read\); get it with"
    ):
        load_dataset("Lost", tmp_path)
    with pytest.raises(DataError, match="closed cannot be read"):
        load_dataset("CIFAR10", tmp_path)
    write_mat(tmp_path / "open" / "lost.mat")
    assert load_dataset("Lost", tmp_path).n_examples == 20


def test_a_broken_file_is_our_error_and_names_the_file(tmp_path):
    path = write_mat(tmp_path / "lost.mat")
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"Lost: .*lost.mat cannot be used: it is truncated"):
        load_dataset("Lost", tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match="neither in"):
        load_dataset("Lost", tmp_path)


@pytest.mark.parametrize("name", ["Lost", "MSRCv2", "Birdsong", "Italian"])
def test_real_files_agree_with_everything_that_is_known(real_data, name):
    dataset = load_dataset(name, real_data)
    published = dataset.card.published
    assert dataset.warnings == ()
    assert dataset.input_shape == (published.examples, published.features)
    assert dataset.n_classes == published.classes
    assert round(dataset.mean_candidates, 2) == published.mean_candidates
    assert dataset.noise_rate == published.noise_rate == 0


@pytest.mark.parametrize(
    ("name", "pl_type"), [("Digits_USS", "uss"), ("Digits_FPS", "fps"), ("Digits_ID", "id")]
)
def test_digits_are_built_in(name, pl_type):
    dataset = load_dataset(name)
    assert dataset.input_shape == (1797, 64)
    assert dataset.card.sizes == Sizes(1797, 64, 10)
    assert dataset.card.candidates == CandidateSpec(pl_type)
    assert (dataset.features.min(), dataset.features.max()) == (0, 1)
    assert np.array_equal(dataset.candidates.argmax(axis=1), dataset.labels)
    assert dataset.mean_candidates == 1
    drawn = draw_candidates(dataset, dataset.card.candidates, 0)
    assert drawn.noise_rate == 0
    assert drawn.mean_candidates > 2


def test_sources_with_public_files_name_them():
    for name in BENCHMARK:
        files = find_source(name).files
        assert len(files) == (0 if name == "English" else 1)
        assert all(len(file.git_sha1) == 40 and file.url.startswith("https://") for file in files)
