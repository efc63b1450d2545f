"""The house as a map: which room stands on which. The files are read, not imported."""

import ast
import importlib
import textwrap
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from mutation import MUTANTS

SOURCE = Path(__file__).parents[1] / "mpmtl_prob"

#: From the ground up. A file may import its own room and whatever stands below; rooms on one line do not know each other.
#: A package whose rooms are listed is itself the last of them: the face that it shows to the floors above. Files that share
#: a room are joined by a plus.
ROOMS = """
    _util
    privacy.units privacy.lattice
    privacy.mechanisms
    privacy.accounting
    privacy.board
    privacy.guarantee
    privacy.ledger_file
    privacy.ledger
    privacy.charge_and_draw privacy.audit privacy.tables
    privacy data
    datasets convex single_task theory.utility theory.people theory.projection
    releases
    schema
    estimators models
    sampling inference.subspace
    inference.public
    inference.owner inference.curator
    inference.noise_aware
    inference
    adaptation.data
    adaptation.estimator adaptation.public_fit
    adaptation.paper
    adaptation.moments theory.adaptation
    adaptation.adapt
    theory
    adaptation
    evaluation threat_models federated
    plots scikit extend
    desk
    _moved
    mpmtl_prob
    cli.demo cli.options privacy.__main__
    cli.demo_federated cli.desk
    cli.stages
    cli.adapt cli.demonstration cli.federated cli.ledger cli.plan cli.report cli.reproduce cli.tasks
    cli.main
    cli
    __main__
"""
FLOOR = {room: floor for floor, line in enumerate(ROOMS.strip().splitlines()) for room in line.split()}
ROOM = {name: room for room in FLOOR for name in room.split("+")}
FACES = {name.split(".")[0] for name in ROOM if "." in name}


def modules() -> dict[str, Path]:
    """Every file by its name inside the package: ``privacy.ledger``, and ``privacy`` for the package's own."""
    paths = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "mpmtl_prob"] = path
    return paths


MODULES = modules()


def room(module: str) -> str | None:
    """The room that a file is in; None if the map has none for it."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((ROOM[name] for name in names if name in ROOM and (name == module or name not in FACES)), None)


def imports(text: str) -> Iterator[tuple[str, bool]]:
    """Yield what a file imports of this package, wherever it does, and whether it needs it to run (not for types alone)."""
    tree = ast.parse(text)
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." * node.level + f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            # the package's own face imports by any of its names, which stand in the file for type checkers
            names = [node.args[0].value] if isinstance(node.args[0], ast.Constant) else []
        for name in names:
            assert not name.startswith("."), f"a relative import of {name}: give its full name"
            if name.split(".")[0] == "mpmtl_prob":
                inside = name.removeprefix("mpmtl_prob").removeprefix(".")
                parent = inside.rpartition(".")[0]
                target = inside if inside in MODULES else parent if parent in MODULES else "mpmtl_prob"
                yield target, id(node) not in for_types


@cache
def every_import() -> dict[str, list[tuple[str, bool]]]:
    """By file."""
    return {module: list(imports(path.read_text(encoding="utf-8"))) for module, path in MODULES.items()}


def runs_upwards(module: str, target: str) -> bool:
    """Tell whether an import leads to a room that is not below the file's own."""
    here, there = room(module), room(target)
    assert here is not None
    assert there is not None
    return here != there and FLOOR[there] >= FLOOR[here]


def test_every_file_is_in_a_room_and_every_room_is_there():
    assert [module for module in MODULES if room(module) is None] == []
    empty = FLOOR.keys() - {room(module) for module in MODULES}
    assert not empty


def test_every_public_package_says_what_is_in_it():
    """A list of names, each of which is there, as an attribute or as a module."""
    for module, path in MODULES.items():
        face = path.name == "__init__.py" or module in ("extend", "plots", "scikit")
        if not face or any(part.startswith("_") for part in module.split(".")):
            continue
        package = importlib.import_module("mpmtl_prob" if module == "mpmtl_prob" else f"mpmtl_prob.{module}")
        names = getattr(package, "__all__", [])
        assert names, module
        assert not [name for name in names if not hasattr(package, name) and f"{module}.{name}" not in MODULES], module


def test_imports_run_downwards():
    upwards = {
        (module, target)
        for module, targets in every_import().items()
        for target, _ in targets  # a type that stands above is an idea from above: it counts
        if runs_upwards(module, target)
    }
    assert upwards == set()


def test_no_files_import_each_other_in_a_circle():
    """No circle of imports, those for types alone and those inside functions included.

    A file imports itself where it shows how it is used. A package's own file is the last of its folder: it imports the
    others, and none of them imports it.
    """
    graph = {module: {target for target, _ in targets} - {module} for module, targets in every_import().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


#: With these a docstring is a fragment, whose subject only its writer knows.
FRAGMENTS = {"What", "Of", "How", "Where", "Who", "As", "Which", "Whether", "Whose", "When", "Why", "That"}
TESTS = Path(__file__).parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def files_of_tests() -> dict[str, ast.Module]:
    """Parse every file in the folder of the tests, their helpers included, by its name in it."""
    files = sorted(TESTS.rglob("*.py"))
    return {path.relative_to(TESTS).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def fragments(tree: ast.AST) -> list[str]:
    """List the first lines of docstrings that begin with a fragment."""
    described = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS))]
    texts = [text for node in described if (text := ast.get_docstring(node))]
    return [text.splitlines()[0] for text in texts if text.split()[0].strip(",.:") in FRAGMENTS]


def names_that_say_nothing(tree: ast.AST) -> list[int]:
    """List the lines that assign or take a variable called ``found``, which does not say what it holds."""
    variables = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    lines = [node.lineno for node in variables if node.id == "found"]
    return lines + [node.lineno for node in ast.walk(tree) if isinstance(node, ast.arg) and node.arg == "found"]


def long_test_names(tree: ast.AST) -> list[str]:
    """List the names of tests of more than 60 characters: the sentence goes into the docstring."""
    functions = [node.name for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    return [name for name in functions if name.startswith("test_") and len(name) > 60]


def test_docstrings_begin_with_a_sentence_or_a_name():
    in_package = {module: fragments(ast.parse(path.read_text(encoding="utf-8"))) for module, path in MODULES.items()}
    in_tests = {name: fragments(tree) for name, tree in files_of_tests().items()}
    assert {name: lines for name, lines in (in_package | in_tests).items() if lines} == {}


def test_variables_of_tests_say_what_they_hold():
    lines = {name: names_that_say_nothing(tree) for name, tree in files_of_tests().items()}
    assert {name: numbers for name, numbers in lines.items() if numbers} == {}


def test_names_of_tests_are_short():
    names = {name: long_test_names(tree) for name, tree in files_of_tests().items()}
    assert {name: long for name, long in names.items() if long} == {}


def test_the_language_of_tests_is_read_in_all_its_places():
    """The three checks above see a module's, a class's and a function's docstring, every kind of variable and methods."""
    text = '''
        """What a module says."""
        class Kind:
            """Of a class."""
            def test_{name}(self, found):
                """Which method."""
                (found, other), third = [], [found for found in ()]
        def plain():
            """Return what is wanted."""
    '''
    tree = ast.parse(textwrap.dedent(text.format(name="n" * 56)))
    assert fragments(tree) == ["What a module says.", "Of a class.", "Which method."]
    assert len(names_that_say_nothing(tree)) == 3
    assert long_test_names(tree) == ["test_" + "n" * 56]
    assert long_test_names(ast.parse(f"def test_{'n' * 55}(): pass")) == []


def test_a_module_holds_one_idea_and_a_function_one_step():
    long = [module for module, path in MODULES.items() if len(path.read_text(encoding="utf-8").splitlines()) > 600]
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body  # what is said of it may take its space
                if body and body[-1].end_lineno - body[0].lineno >= 50:
                    long.append(f"{module}.{node.name}")
    assert long == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from mpmtl_prob.privacy import delta", [("privacy", True)]),
        ("from mpmtl_prob.privacy import ledger", [("privacy.ledger", True)]),
        ("import mpmtl_prob as mp", [("mpmtl_prob", True)]),
        ("def f():\n    from mpmtl_prob.data import tasks", [("data.tasks", True)]),
        ("if TYPE_CHECKING:\n    from mpmtl_prob.data.tasks import TaskData", [("data.tasks", False)]),
        ("importlib.import_module('mpmtl_prob.releases')", [("releases", True)]),
        ("import numpy", []),
    ],
)
def test_every_way_to_import_is_seen(text, expected):
    assert list(imports(text)) == expected


@pytest.mark.parametrize(
    ("module", "target", "upwards"),
    [
        ("privacy.mechanisms.gaussian", "_util.arrays", False),
        ("privacy.mechanisms.gaussian", "privacy.mechanisms.vectors", False),
        ("privacy.mechanisms.gaussian", "privacy.accounting.curves", True),
        ("privacy.mechanisms.gaussian", "privacy", True),
        ("privacy.charge_and_draw", "privacy.audit.game", True),
        ("inference.owner.methods", "inference.public.shared", False),
        ("inference.public.shared", "inference.owner.methods", True),
        ("inference.owner.methods", "inference.curator.fitting", True),
    ],
)
def test_the_map_tells_up_from_down(module, target, upwards):
    assert runs_upwards(module, target) is upwards


def test_every_mutant_finds_its_text_once_and_its_test():
    tests = Path(__file__).parent
    for mutant in MUTANTS:
        assert (SOURCE / mutant.file).read_text().count(mutant.old) == 1, mutant.name
        file, test = mutant.test.split("::")
        assert f"def {test.split('[')[0]}(" in (tests / file).read_text(), mutant.name


def names_of_variables(text: str) -> set[str]:
    """Return the names of variables and arguments that a file defines."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
    return names


def test_no_variable_is_called_found():
    """A variable's name says what it holds, in the package and in its studies."""
    files = [*SOURCE.rglob("*.py"), *(SOURCE.parent / "studies").rglob("*.py")]
    assert [str(path) for path in files if "found" in names_of_variables(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "text",
    ["found = 1", "found: int = 1", "for found in (): pass", "def f(found): pass", "lambda found: 1", "(found := 1)"],
)
def test_every_kind_of_variable_is_seen(text):
    assert "found" in names_of_variables(text)
    assert "found" not in names_of_variables("found()\nx.found = {'found': f(found=1)}")
