"""The table of mutants must not rot: each finds its text, changes it, and names tests that exist."""

from __future__ import annotations

import ast

import pytest

from tests import mutants


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_of_a_mutant_stands_once_in_its_file_and_its_change_is_code(mutant):
    text = mutants.text_of(mutant)
    assert mutant.new != mutant.old
    ast.parse(text.replace(mutant.old, mutant.new))


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_of_a_mutant_exist(mutant):
    files = [word for word in mutant.tests if ".py" in word]
    assert files
    for file in files:
        assert (mutants.ROOT / "tests" / file).is_file()


def test_names_are_different():
    names = [mutant.name for mutant in mutants.MUTANTS]
    assert len(set(names)) == len(names) >= 17


def test_a_text_that_is_gone_is_refused():
    gone = mutants.MUTANTS[0]._replace(old="no such line")
    with pytest.raises(SystemExit, match=r"stands 0 times in integrators/protocol\.py, needs once"):
        mutants.text_of(gone)
