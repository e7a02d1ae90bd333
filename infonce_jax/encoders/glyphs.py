"""Pairs of a picture and a text that every installation has: glyphs of a DejaVu font and their Unicode names."""

from __future__ import annotations

import dataclasses
import functools
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infonce_jax.checks import count, refuse

__all__ = ["ALPHABET", "Glyphs", "bags_of_pieces", "common_pieces", "decode_names", "encode_names", "glyphs"]

# Unicode names are made of these (The Unicode Standard, section 4.8); index 0 is padding.
ALPHABET = " -0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HELD_OUT = 0.2
_SPLIT = 0  # the seed of the split; another one would be another experiment


@dataclasses.dataclass(frozen=True, eq=False)
class Glyphs:
    """Glyphs and their names in two parts; row i of the images and row i of the names are a pair.

    Attributes:
        images: the training part, shape (n, size, size), ink from 0 to 1, float32; row 0 is the top.
        names: shape (n, length), indices of characters, see `decode_names`; int32, padded with 0.
        code_points: shape (n,).
        held_out_images: the other part, shape (m, size, size).
        held_out_names: shape (m, length).
        held_out_code_points: shape (m,).
        blank: how many named characters of the font have no ink; they are left out.
        identical: how many were left out because an earlier character has the same image. Of a Latin A, a Greek Alpha
            and a Cyrillic A only the first stays: no encoder could tell which name is meant.
    """

    images: np.ndarray
    names: np.ndarray
    code_points: np.ndarray
    held_out_images: np.ndarray
    held_out_names: np.ndarray
    held_out_code_points: np.ndarray
    blank: int
    identical: int

    def for_tuning(self) -> Glyphs:
        """The training part, split once more in the same way: where settings are chosen, so that the held-out pairs
        have no say in them."""
        return _split(self.images, self.names, self.code_points, self.blank, self.identical)

    def bags(self, length: int = 3, least: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Names as bags of pieces, for both parts, shapes (n, pieces) and (m, pieces); see `bags_of_pieces`.

        The pieces are the single characters and those of `length` characters that stand in at least `least` names of
        the training part, and so never depend on the held-out one.
        """
        pieces = common_pieces(self.names, 1, least) + common_pieces(self.names, length, least)
        return bags_of_pieces(self.names, pieces), bags_of_pieces(self.held_out_names, pieces)


def glyphs(size: int = 24, font: str = "DejaVuSans") -> Glyphs:
    """Every glyph of a font that has a Unicode name, four fifths for training, the rest held out.

    Glyphs stand on a common baseline at a common scale, centred from left to right, as far as they fit; a larger one
    is shrunk. The same installation of matplotlib gives the same images.

    Args:
        size: height and width of an image in pixels, at least 8.
        font: one of the DejaVu fonts that matplotlib ships, for example "DejaVuSerif".

    Raises:
        InputError: a font that matplotlib does not ship, or too small a size.
    """
    size = count("size", size, least=8, mend="accents vanish in smaller images")
    if font not in _fonts():
        raise refuse("font", repr(font), f"one of {', '.join(sorted(_fonts()))}", "matplotlib ships these")
    return _glyphs(size, font)


@functools.cache
def _glyphs(size: int, font: str) -> Glyphs:
    drawn = _drawn(_fonts()[font], size)
    inked = {code: image for code, image in drawn.items() if image.any()}
    first: dict[bytes, int] = {}
    for code, image in inked.items():
        first.setdefault(image.tobytes(), code)
    codes = np.array(list(first.values()))
    images = np.stack([inked[code] for code in codes]).astype(np.float32) / 255
    names = encode_names([unicodedata.name(chr(code)) for code in codes])
    return _split(images, names, codes, len(drawn) - len(inked), len(inked) - len(first))


def _split(images: np.ndarray, names: np.ndarray, codes: np.ndarray, blank: int, identical: int) -> Glyphs:
    order = np.random.default_rng(_SPLIT).permutation(len(codes))
    cut = round(len(codes) * _HELD_OUT)
    held_out, seen = np.sort(order[:cut]), np.sort(order[cut:])
    return Glyphs(images[seen], names[seen], codes[seen], images[held_out], names[held_out], codes[held_out],
                  blank, identical)  # fmt: skip


def _fonts() -> dict[str, Path]:
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return {path.stem: path for path in folder.glob("DejaVu*.ttf")}


def _drawn(path: Path, size: int) -> dict[int, np.ndarray]:
    """The picture of every named character of a font, uint8, by code point in increasing order."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.ft2font import FT2Font
    from matplotlib.path import Path as Outline
    from matplotlib.transforms import Affine2D

    font = FT2Font(str(path))
    em = 1024.0  # large, so that hinting moves nothing that a pixel of the image would show
    font.set_size(em, 72)
    per_unit = em / font.units_per_EM
    bottom, top = font.descender * per_unit, font.ascender * per_unit
    frame = top - bottom
    renderer = RendererAgg(size, size, 72)
    pen = renderer.new_gc()
    pen.set_linewidth(0.0)
    pictures = {}
    for code in sorted(font.get_charmap()):
        if unicodedata.name(chr(code), None) is None:
            continue
        font.load_char(code)
        vertices, commands = font.get_path()
        renderer.clear()
        if len(vertices):
            low, high = vertices.min(axis=0), vertices.max(axis=0)
            middle = np.array([(low[0] + high[0]) / 2, (top + bottom) / 2])
            reach = max(2 * (high[0] - middle[0]), 2 * (high[1] - middle[1]), 2 * (middle[1] - low[1]), frame)
            place = Affine2D().translate(*-middle).scale(size / reach).translate(size / 2, size / 2)
            renderer.draw_path(pen, Outline(vertices, commands), place, (0.0, 0.0, 0.0))
        pictures[code] = np.array(renderer.buffer_rgba())[..., 3]
    return pictures


def encode_names(names: Sequence[str], length: int | None = None) -> np.ndarray:
    """Names as rows of indices of characters, shape (n, length), int32, padded with 0 at the end.

    Args:
        names: of the characters of `ALPHABET`: capitals, digits, hyphen and space.
        length: of a row; that of the longest name where it is None.

    Raises:
        InputError: another character, or a name longer than a row.

    >>> encode_names(["A B", "-"])
    array([[13,  1, 14],
           [ 2,  0,  0]], dtype=int32)
    """
    longest = max((len(name) for name in names), default=0)
    length = longest if length is None else count("length", length)
    if longest > length:
        raise refuse("names", f"a name of {longest} characters", f"at most {length}", "take a larger length")
    strange = sorted(set("".join(names)) - set(ALPHABET))
    if strange:
        raise refuse("names", f"the character {strange[0]!r}", "capitals, digits, hyphens and spaces",
                     "Unicode names have no others; use name.upper()")  # fmt: skip
    rows = np.zeros((len(names), length), dtype=np.int32)
    for row, name in zip(rows, names, strict=True):
        row[: len(name)] = [ALPHABET.index(character) + 1 for character in name]
    return rows


def decode_names(rows: Any) -> list[str]:
    """The names that `encode_names` made into rows."""
    return ["".join(ALPHABET[index - 1] for index in row if index) for row in np.asarray(rows)]


def common_pieces(rows: Any, length: int = 3, least: int = 5) -> list[str]:
    """Pieces of `length` characters that stand in at least `least` of the names; a space stands before and after.

    Args:
        rows: names as `encode_names` makes them.
        length: characters of a piece.
        least: names that a piece must stand in.
    """
    padded = [f" {name} " for name in decode_names(rows)]
    found = Counter(piece for name in padded for piece in {name[k : k + length] for k in range(len(name) - length + 1)})
    return sorted(piece for piece, times in found.items() if times >= least)


def bags_of_pieces(rows: Any, pieces: Sequence[str]) -> np.ndarray:
    """Which pieces stand in each name, shape (n, len(pieces)), float32, rows of squared norm len(pieces).

    A name without any is a row of zeros. The scale is that of whitened features, one per piece.

    Args:
        rows: names as `encode_names` makes them.
        pieces: strings, for example `common_pieces` of the names that are trained on.
    """
    padded = [f" {name} " for name in decode_names(rows)]
    bags = np.array([[piece in name for piece in pieces] for name in padded], dtype=np.float32)
    norms = np.linalg.norm(bags, axis=1, keepdims=True)
    return bags * np.float32(np.sqrt(len(pieces))) / np.where(norms > 0, norms, 1)
