"""Glyphs and their names: real characters, drawn upright at one scale, each image once."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.encoders.glyphs import bags_of_pieces, common_pieces, decode_names, encode_names, glyphs


@pytest.fixture(scope="module")
def pairs():
    return glyphs()


@pytest.fixture(scope="module")
def by_name(pairs):
    images = np.concatenate([pairs.images, pairs.held_out_images])
    names = decode_names(np.concatenate([pairs.names, pairs.held_out_names]))
    return dict(zip(names, images, strict=True))


def ink(image):
    """First and last row, first and last column with ink."""
    rows, columns = (np.flatnonzero(image.max(axis=axis) > 0.2) for axis in (1, 0))
    return rows[0], rows[-1], columns[0], columns[-1]


def test_names_are_those_of_the_code_points(pairs):
    for codes, names in ((pairs.code_points, pairs.names), (pairs.held_out_code_points, pairs.held_out_names)):
        assert decode_names(names) == [unicodedata.name(chr(code)) for code in codes]


def test_every_named_character_of_the_font_is_accounted_for(pairs):
    from matplotlib import font_manager, ft2font

    font = ft2font.FT2Font(font_manager.findfont("DejaVu Sans"))
    named = [code for code in font.get_charmap() if unicodedata.name(chr(code), None)]
    kept = np.concatenate([pairs.code_points, pairs.held_out_code_points])
    assert len(kept) == len(set(kept.tolist()))
    assert set(kept.tolist()) <= set(named)
    assert len(kept) + pairs.blank + pairs.identical == len(named)
    assert len(pairs.held_out_images) == round(len(kept) / 5)


def test_every_image_is_there_once_under_the_first_of_its_names(by_name):
    assert len({image.tobytes() for image in by_name.values()}) == len(by_name)
    assert all(image.max() > 0 for image in by_name.values())
    assert "LATIN CAPITAL LETTER A" in by_name
    assert not {"GREEK CAPITAL LETTER ALPHA", "CYRILLIC CAPITAL LETTER A", "SPACE"} & set(by_name)


def test_glyphs_stand_upright_on_one_baseline(by_name):
    top, bottom, left, right = ink(by_name["LATIN CAPITAL LETTER L"])
    stroke = by_name["LATIN CAPITAL LETTER L"]
    assert stroke[bottom, left : right + 1].min() > 0.5  # the foot is at the bottom
    assert stroke[top, (left + right) // 2 + 1 :].max() == 0
    assert stroke[top : bottom + 1, left].min() > 0.2  # the stem to the left
    assert ink(by_name["LATIN SMALL LETTER X"])[1] == bottom  # one baseline
    assert ink(by_name["LATIN SMALL LETTER X"])[0] > top + 2  # one scale
    assert ink(by_name["LATIN SMALL LETTER G"])[1] > bottom + 2
    assert ink(by_name["LOW LINE"])[0] > bottom
    assert ink(by_name["FULL STOP"])[0] > ink(by_name["APOSTROPHE"])[1]


def test_a_glyph_larger_than_the_frame_is_shrunk_not_cut(by_name):
    rows, columns = by_name["RIGHTWARDS ARROW"].shape
    assert (rows, columns) == (24, 24)
    top, bottom, left, right = ink(by_name["CARE OF"])
    assert right - left > 2 * (bottom - top) / 3
    for name in ("DOUBLE INTEGRAL", "TRIPLE INTEGRAL", "LATIN CAPITAL LETTER DZ WITH CARON"):
        image = by_name[name]
        assert image[:, [0, -1]].sum() < 0.25 * image.sum(), name


def test_the_split_is_fixed_and_the_one_for_tuning_stays_in_the_training_part(pairs):
    tuning = pairs.for_tuning()
    assert set(pairs.code_points.tolist()).isdisjoint(pairs.held_out_code_points.tolist())
    parts = np.concatenate([tuning.code_points, tuning.held_out_code_points])
    np.testing.assert_array_equal(np.sort(parts), pairs.code_points)


def test_other_sizes_and_fonts():
    serif = glyphs(12, "DejaVuSerif-Bold")
    assert serif.images.shape[1:] == (12, 12)
    assert 0 <= serif.images.min() < serif.images.max() <= 1


def test_names_survive_being_encoded():
    names = ["A", "BRAILLE PATTERN DOTS-1245", "LATIN SMALL LETTER A WITH GRAVE"]
    rows = encode_names(names, length=40)
    assert rows.shape == (3, 40)
    assert decode_names(rows) == names


def test_pieces_are_counted_once_per_name_and_read_across_word_ends():
    rows = encode_names(["AAAA", "A A", "B"])
    assert common_pieces(rows, length=2, least=2) == [" A", "A "]
    bags = bags_of_pieces(rows, ["AA", "A ", " B"])
    np.testing.assert_allclose(bags**2, [[1.5, 1.5, 0], [0, 3, 0], [0, 0, 3]], rtol=1e-6)
    np.testing.assert_array_equal(bags_of_pieces(encode_names(["C"]), ["AA"]), [[0]])


def test_what_cannot_be_drawn_or_encoded_is_refused():
    for call, words in ((lambda: glyphs(4), "size"), (lambda: glyphs(font="Comic"), "DejaVuSans"),
                        (lambda: encode_names(["a"]), "'a'"), (lambda: encode_names(["AB"], 1), "length")):  # fmt: skip
        with pytest.raises(ij.InputError, match=words):
            call()
