"""Bad commands and files, and what a person reads then; `test_command_line.py` has more numbers out of range."""

from __future__ import annotations

import pytest

from infonce_jax.study import cli

FILES = {
    "import_error.py": "import no_module_of_this_name\n",
    "syntax_error.py": "scenario = [\n",
    "number.py": "scenario = 3\n",
    "quits.py": "import sys\nsys.exit(3)\n",
    "vector.py": "import infonce_jax as ij\nenergy = ij.energies.from_function(lambda x: x, shape=(1, 2))\n",
    "nan.py": "import infonce_jax as ij, jax.numpy as jnp\n"
              "energy = ij.energies.from_function(lambda x: jnp.log(x[0, 0]), shape=(1, 2))\n",
}  # fmt: skip
KNOWN = "digit_orbit, ring5, ring8, cube, square_keys, double_well, uniformity, ring<n> or file.py:name"
NOWHERE = f"scenario: got 'nowhere'; needs {KNOWN}; see 'infonce-jax scenarios'"
# FILE stands for the directory of the files above.
FAILS = "scenario: got FILE/{name}.py, which fails with {error}; needs a file that runs; try python FILE/{name}.py"
VECTOR = "InputError: function: got a result float32[1, 2]; needs a float scalar; end it with jnp.sum or jnp.mean"
UNNAMED = (
    "scenario: got number.py whose {given}; needs a Scenario or Energy; name it after a colon, as in mine.py:energy"
)
COMMANDS = {
    "study --scenario nowhere": NOWHERE,
    "hitting --scenario nowhere": NOWHERE,
    "recommend --scenario nowhere": NOWHERE,
    "landscape --scenario nowhere": NOWHERE,
    "study --scenario FILE/missing.py": (
        "scenario: got FILE/missing.py; needs a Python file that exists; give its path, as in mine.py:scenario"
    ),
    "study --scenario FILE/import_error.py": FAILS.format(
        name="import_error", error="ModuleNotFoundError: No module named 'no_module_of_this_name'"
    ),
    "study --scenario FILE/syntax_error.py": FAILS.format(
        name="syntax_error", error="SyntaxError: '[' was never closed (syntax_error.py, line 1)"
    ),
    "study --scenario FILE/quits.py": FAILS.format(name="quits", error="SystemExit: 3"),
    "study --scenario FILE/vector.py:energy": FAILS.format(name="vector", error=VECTOR),
    "study --scenario FILE/number.py": UNNAMED.format(given="'scenario' is int"),
    "study --scenario FILE/number.py:energy": UNNAMED.format(given="'energy' is NoneType"),
    "landscape --scenario FILE/nan.py:energy": (
        "energy: got NaN or infinite values or slopes at 135 of 256 random configurations; needs a function finite "
        "everywhere on the spheres; check logarithms and roots in it"
    ),
    "landscape --scenario FILE/nan.py:energy --temperature 2": (
        "temperature: FunctionEnergy has none to change; use an energy built with one"
    ),
    "landscape --quenches 0": "num_quenches: got 0; needs a whole number, at least 1; pass a whole number",
    "landscape --seed -1": "seed: got -1; needs a whole number, at least 0; for example 0",
    "study --steps 5": "steps: got 5; needs a whole number, at least 10; use at least 10, better 100000",
    "study --step-size nan": "step_size: got nan; needs a finite number; pass a number above zero",
    "hitting --betas cold": "betas: got 'cold'; needs a number; numbers above zero separated by commas, as in 5,6,7",
    "hitting --betas 2 --depths 1": "betas, depths: got 2 and 1; needs one of the two; leave one out",
    "hitting --num-chains 1": "num_chains: got 1; needs a whole number, at least 2; use at least 2, better 1024",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("scenarios")
    for name, text in FILES.items():
        (directory / name).write_text(text)
    return directory


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bad_command_gives_this_line_and_exit_code_two(command, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # results go to runs/ by default
    assert cli.main([word.replace("FILE", str(files)) for word in command.split()]) == 2
    assert capsys.readouterr().err.replace(str(files), "FILE") == f"infonce-jax: {COMMANDS[command]}\n"
    assert not list(tmp_path.rglob("*.html"))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("study --chains many", "Error parsing --chains: invalid literal for int() with base 10: 'many'"),
        (
            "study --step-size small",
            "Error parsing --step-size: no type matching {None}|FLOAT could be instantiated from ['small']",
        ),
        ("study --colour red", "Unrecognized options: --colour, red"),
        ("anneal", "Unrecognized options: anneal"),
        ("", "Expected one of {study, "),
    ],
)
def test_words_that_are_no_options_are_refused_by_the_parser(command, message, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(command.split())
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
