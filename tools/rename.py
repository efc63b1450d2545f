"""Rename classes, functions, methods, arguments and modules by their qualified names, in code and in texts.

    python tools/rename.py tools/names_0_4.txt [--dry-run]

Every line of the table is ``old -> new``:

    mpmtl_prob.privacy.door -> mpmtl_prob.privacy.charge_and_draw     a module or a package
    mpmtl_prob.models.noise:leaning -> shear                          a class, a function or a constant of a module
    mpmtl_prob.models.noise:Noise.tilt -> likelihood_slope            a method or an attribute, with what overrides it
    mpmtl_prob.models.noise:shear(tilt) -> slope                      an argument, where it is passed by name too
    mpmtl_prob.tasks:TaskData.own -> rows_of !                        the same where nobody knows whose attribute it is
    mpmtl_prob.tasks:TaskData.own() -> rows_of() !!                   the same in texts, wherever it is called

References are found by a language server, which resolves names by their types (``pip install basedpyright``): two
functions of one name in two modules are two names. Where it cannot know a type, as in an untyped test, an attribute or a
keyword of the old name is renamed if nothing else in the package has that name, and is listed otherwise. In strings,
comments, pages and notebooks a name is replaced where it stands with its class or module (``Noise.tilt``), or alone if it is
no English word (it has an underscore or a capital inside).
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import json
import re
import subprocess
import sys
import threading
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
CODE = ("mpmtl_prob", "tests", "benchmarks", "studies", "apps", "docs")
#: Files that say how something was called, and those that an earlier version wrote.
LEFT = (
    "CHANGELOG.md",
    "tests/files_of_0_3_0/",
    "tools/",
    "docs/_build/",
    ".venv/",
    "mpmtl_prob/_moved.py",
    "tests/test_moved.py",
)


class Symbol(NamedTuple):
    """A line of the table that is no module."""

    module: str
    path: tuple[str, ...]  #: ("Class", "attribute"), ("function",)
    argument: str | None
    new: str
    surely: bool  #: an attribute of this name is renamed where nobody knows whose it is
    in_texts: bool  #: and in strings, pages and notebooks, after a dot, or an argument before an equals sign
    method: bool  #: and there before a bracket alone

    @property
    def old(self) -> str:
        return self.argument or self.path[-1]

    def __str__(self) -> str:
        return f"{self.module}:{'.'.join(self.path)}" + (f"({self.argument})" if self.argument else "")


class Edit(NamedTuple):
    """One place in one file; lines and columns from 0."""

    line: int
    start: int
    end: int
    new: str


#: A file, and a line and a column from 0.
Place = tuple[Path, int, int]


def _file(uri: str) -> Path:
    return Path(unquote(uri.removeprefix("file://"))).resolve()


class Server:
    """A language server, over its standard input and output."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._numbers, self._answers, self._arrived = itertools.count(1), {}, threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        folder = {"uri": ROOT.as_uri(), "name": "repository"}
        can = {
            "workspace": {"configuration": True, "workspaceEdit": {"documentChanges": True}, "workspaceFolders": True}
        }
        self.request(
            "initialize",
            {"processId": None, "rootUri": ROOT.as_uri(), "workspaceFolders": [folder], "capabilities": can},
        )
        self._send({"method": "initialized", "params": {}})

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        with self._arrived:
            if not self._arrived.wait_for(lambda: number in self._answers, 300):
                raise TimeoutError(method)
            return self._answers.pop(number)

    def open(self, path: Path) -> None:
        document = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text()}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def rename(self, path: Path, line: int, column: int, new: str) -> dict[Path, set[Edit]]:
        at = {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": column}, "newName": new}
        answer = self.request("textDocument/rename", at)
        edits: dict[Path, set[Edit]] = defaultdict(set)
        for change in (answer.get("result") or {}).get("documentChanges", []):
            file = _file(change["textDocument"]["uri"])
            # a notebook's cells are text, see texts(), and what an earlier version runs keeps its names
            if file.suffix != ".py" or str(file).removeprefix(f"{ROOT}/").startswith(LEFT):
                continue
            for edit in change["edits"]:
                first, last = edit["range"]["start"], edit["range"]["end"]
                edits[file].add(Edit(first["line"], first["character"], last["character"], edit["newText"]))
        return edits

    def definitions(self, path: Path, line: int, column: int) -> set[Place]:
        """Where the name at this place is defined; nowhere, if it does not know."""
        at = {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": column}}
        return {
            (_file(each["uri"]), each["range"]["start"]["line"], each["range"]["start"]["character"])
            for each in self.request("textDocument/definition", at).get("result") or []
        }

    def close(self) -> None:
        self._process.kill()

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0"} | message).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _read(self) -> None:
        out = self._process.stdout
        assert out is not None
        while True:
            length = 0
            while (line := out.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length"):
                    length = int(line.split(b":")[1])
            if not length:
                return
            message = json.loads(out.read(length))
            if "method" in message and "id" in message:  # the server asks how it is configured
                items = message["params"].get("items", []) if isinstance(message.get("params"), dict) else []
                self._send({"id": message["id"], "result": [None for _ in items]})
            elif "id" in message:
                with self._arrived:
                    self._answers[message["id"]] = message
                    self._arrived.notify_all()


def read_table(path: Path) -> tuple[dict[str, str], list[Symbol]]:
    """The modules and the symbols of a table."""
    modules, symbols = {}, []
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        old, new = (part.strip() for part in line.split("->"))
        if ":" not in old:
            modules[old] = new
            continue
        module, name = old.split(":")
        method, name, new = name.endswith("()"), name.removesuffix("()"), new.replace("()", "")
        parts = re.fullmatch(r"([\w.]+)(?:\((\w+)\))?", name)
        assert parts, line
        sure = len(new) - len(new.rstrip("!"))
        symbols.append(
            Symbol(module, tuple(parts[1].split(".")), parts[2], new.rstrip("! "), sure > 0, sure > 1, method)
        )
    return modules, symbols


def python_files() -> list[Path]:
    return [
        path
        for top in CODE
        for path in sorted((ROOT / top).rglob("*.py"))
        if not any(str(path.relative_to(ROOT)).startswith(left) for left in LEFT)
    ]


def file_of(module: str) -> Path:
    base = ROOT / Path(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


class Classes:
    """Every class by its name, to find what overrides a method."""

    def __init__(self) -> None:
        self.where: dict[str, list[tuple[Path, ast.ClassDef]]] = defaultdict(list)
        for path in python_files():
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    self.where[node.name].append((path, node))

    def below(self, name: str) -> Iterator[tuple[Path, ast.ClassDef]]:
        """Every class that derives from one of this name, the class itself left out."""
        seen, waiting = set(), [name]
        while waiting:
            parent = waiting.pop()
            for path, node in itertools.chain.from_iterable(self.where.values()):
                bases = {_last_name(base) for base in node.bases}
                if parent in bases and (path, node.lineno) not in seen:
                    seen.add((path, node.lineno))
                    waiting.append(node.name)
                    yield path, node


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def definition(tree: ast.AST, path: tuple[str, ...], argument: str | None) -> Iterator[tuple[int, int, str]]:
    """Line (from 1), column (of the statement) and name of what a path of names defines in a module or class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == path[0]:
            if len(path) > 1:
                yield from definition(node, path[1:], argument)
            elif argument is None:
                yield node.lineno, node.col_offset, node.name
            elif isinstance(node, ast.ClassDef):
                yield from definition(node, (argument,), None)
            else:
                spec = node.args
                for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
                    if each.arg == argument:
                        yield each.lineno, each.col_offset, each.arg
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            for target in [node.target] if isinstance(node, ast.AnnAssign) else node.targets:
                if isinstance(target, ast.Name) and (target.id,) == path:
                    yield target.lineno, target.col_offset, target.id
        elif isinstance(node, ast.If | ast.Try):
            yield from definition(node, path, argument)
    if isinstance(tree, ast.ClassDef) and len(path) == 1 and argument is None:
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node) == f"self.{path[0]}"
            ):
                yield node.lineno, node.end_col_offset - len(node.attr), node.attr  # type: ignore[operator]
                return


def positions(symbol: Symbol, classes: Classes) -> list[tuple[Path, int, int]]:
    """Where a symbol and all that overrides it are defined: file, line and column from 0."""
    path = file_of(symbol.module)
    places = [(path, *place) for place in definition(ast.parse(path.read_text()), symbol.path, symbol.argument)]
    if not places:
        raise ValueError(f"{symbol}: not there")
    owner = symbol.path[0] if len(symbol.path) > 1 else None
    if owner:
        for file, node in classes.below(owner):
            places += [(file, *place) for place in definition(node, symbol.path[1:], symbol.argument)]
    out = []
    for file, line, column, name in places:
        text = file.read_text().splitlines()[line - 1]
        start = text.index(name, len(text.encode()[:column].decode()))
        start = re.compile(rf"\b{name}\b").search(text, start).start()  # type: ignore[union-attr]
        out.append((file, line - 1, start))
    return out


def apply(edits: dict[Path, set[Edit]]) -> None:
    for path, places in edits.items():
        lines = path.read_text().split("\n")
        for edit in sorted(places, reverse=True):
            line = lines[edit.line]
            lines[edit.line] = line[: edit.start] + edit.new + line[edit.end :]
        path.write_text("\n".join(lines))


def unresolved(symbols: list[Symbol], server: Server, edits: dict[Path, set[Edit]]) -> None:
    """Add edits of attributes and keywords of old names whose owner's type nobody knows; list those that may be others'."""
    new: dict[str, set[str]] = defaultdict(set)
    surely = {symbol.old for symbol in symbols if symbol.surely}
    for symbol in symbols:
        if len(symbol.path) > 1 or symbol.argument:
            new[symbol.old].add(symbol.new)
    new_at = {(path, edit.line, edit.start): edit.new for path, places in edits.items() for edit in places}
    renamed = set(new_at)
    members = {name for path in python_files() for name in _other_members(path, renamed)}
    for path in python_files():
        tokens = list(tokenize.generate_tokens(io.StringIO(path.read_text()).readline))
        depth = 0
        for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
            depth += (token.string in "([{" and token.string != "") - (token.string in ")]}" and token.string != "")
            if token.type != tokenize.NAME or token.string not in new:
                continue
            keyword = after.string == "=" and before.string in ("(", ",") and depth > 0
            line, start = token.start[0] - 1, token.start[1]
            if not (before.string == "." or keyword) or (path, line, start) in renamed:
                continue
            defined = server.definitions(path, line, start)
            if names := {new_at[place] for place in defined if place in new_at}:  # as of a data class's arguments
                edits[path].add(Edit(line, start, token.end[1], names.pop()))
                continue
            if defined:
                continue
            where = f"{path.relative_to(ROOT)}:{line + 1}: {token.line.strip()}"
            if len(new[token.string]) == 1 and (token.string in surely or token.string not in members):
                (name,) = new[token.string]
                edits[path].add(Edit(line, start, token.end[1], name))
                print(f"unknown owner, renamed to {name}: {where}")
            else:
                print(f"unknown owner, {token.string} left alone: {where}")


def _other_members(path: Path, renamed: set[tuple[Path, int, int]]) -> Iterator[str]:
    """Names of methods, attributes and arguments that a file defines and that are not renamed."""
    lines = path.read_text().split("\n")
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                name = each.name if isinstance(each, ast.FunctionDef) else None
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    name = each.target.id
                if name:
                    column = re.compile(rf"\b{name}\b").search(lines[each.lineno - 1], each.col_offset)
                    if column and (path, each.lineno - 1, column.start()) not in renamed:
                        yield name


def _renamed(text: str, words: dict[str, str]) -> str:
    for old, new in words.items():
        text = re.sub(rf"\b{old}\b", new, text)
    return text


def mutants(words: dict[str, dict[str, str]], moved: dict[str, str]) -> None:
    """Rename in the texts of ``tests/mutation.py``, each of which stands in one file of the package.

    Args:
        words: what was renamed in each file, by its path before.
        moved: its path now.
    """
    path = ROOT / "tests" / "mutation.py"
    source = path.read_text()
    lines = source.split("\n")
    calls = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and _last_name(node.func) == "Mutant"
    ]
    for call in sorted(calls, key=lambda node: -node.lineno):
        file = call.args[1].value  # type: ignore[attr-defined]
        now = moved.get(f"mpmtl_prob/{file}", f"mpmtl_prob/{file}")
        text, old = (ROOT / now).read_text(), call.args[2].value  # type: ignore[attr-defined]
        there = [pair for pair in words.get(f"mpmtl_prob/{file}", {}).items() if re.search(rf"\b{pair[0]}\b", old)]
        # a word may be a local variable's too: those are renamed with which the text is in the file
        several = (dict(part) for n in range(len(there) + 1) for part in itertools.combinations(there, n))
        chosen = next((part for part in several if _renamed(old, part) in text), {})
        for place, argument in reversed(list(enumerate(call.args))):
            first, last = argument.lineno - 1, argument.end_lineno or argument.lineno
            if place == 1:
                lines[first] = lines[first].replace(f'"{file}"', f'"{now.removeprefix("mpmtl_prob/")}"')
            if place not in (2, 3):
                continue
            lines[first:last] = _renamed("\n".join(lines[first:last]), chosen).split("\n")
    path.write_text("\n".join(lines))
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Call) and _last_name(node.func) == "Mutant":
            name, file, old = (argument.value for argument in node.args[:3])  # type: ignore[attr-defined]
            if (ROOT / "mpmtl_prob" / file).read_text().count(old) != 1:
                print(f"mutant by hand: {name} ({file})")


def docstrings(words: dict[str, dict[str, str]], moved: dict[str, str]) -> None:
    """Rename what docstrings list (``name: what it is``) and refer to (``:meth:`name```) in the files of the names."""
    for file, names in words.items():
        path = ROOT / moved.get(file, file)
        text = path.read_text()
        parts = re.split(r'("""(?:.|\n)*?""")', text)  # every other part is a docstring
        for k in range(1, len(parts), 2):
            for old, new in names.items():
                parts[k] = re.sub(rf"(?m)^( {{4,}}){old}:(?= [a-z])", rf"\g<1>{new}:", parts[k])
                parts[k] = re.sub(rf"(:(?:meth|attr|func|class|data):`~?){old}(?=`)", rf"\g<1>{new}", parts[k])
        text = "".join(parts)
        path.write_text(text)


def texts(modules: dict[str, str], symbols: list[Symbol], old_modules: bool) -> None:
    """Replace names in strings, comments, pages and notebooks."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    kinds = (".py", ".md", ".ipynb", ".toml", ".yml", ".sh", ".svg", ".cfg")
    files = [ROOT / name for name in listed if name.endswith((*kinds, "Makefile", "run")) and not name.startswith(LEFT)]
    rules: list[tuple[re.Pattern[str], str]] = []
    for symbol in symbols:
        old, new = symbol.old, symbol.new
        code_like = "_" in old.strip("_") or re.search(r"[a-z][A-Z]", old)
        if symbol.in_texts:
            rules.append(
                (
                    re.compile(
                        rf"\b{old}=(?![= ])"
                        if symbol.argument
                        else rf"(?<=[\w)\]]\.){old}\b(?=\()"
                        if symbol.method
                        else rf"(?<=\w\.){old}\b"
                    ),
                    f"{new}=" if symbol.argument else new,
                )
            )
        if code_like:
            rules.append((re.compile(rf"(?<![\w/]){re.escape(old)}(?!\w)"), new))
        elif len(symbol.path) > 1 and not symbol.argument:
            rules.append((re.compile(rf"\b({symbol.path[-2]}\.){old}\b"), rf"\g<1>{new}"))
        elif not symbol.argument:
            last = symbol.module.split(".")[-1].removeprefix("_")
            package = symbol.module.split(".")[1] if symbol.module.count(".") else last
            owners = "|".join(
                sorted({last, package, "mp", "mpmtl_prob", symbol.module.rsplit(".", 1)[0]}, key=len, reverse=True)
            )
            rules.append(
                (
                    re.compile(rf"\b((?:{re.escape(owners).replace(re.escape('|'), '|')})\.){old}\b(?!\.py)"),
                    rf"\g<1>{new}",
                )
            )
            if old[0].isupper():  # a class that is a word: where it is set as code
                rules.append((re.compile(rf"((?:`|:class:`~?)){old}(?=[`(\[])"), rf"\g<1>{new}"))
    if old_modules:
        for old, new in sorted(modules.items(), key=lambda pair: -len(pair[0])):
            rules.append((re.compile(rf"(?<![\w.]){re.escape(old)}(?!\w)"), new))
            rules.append(
                (re.compile(rf"(?<![\w.]){re.escape(old.replace('.', '/'))}(?=\.py|/)"), new.replace(".", "/"))
            )
    defined: dict[str, set[str]] = defaultdict(set)
    for symbol in symbols:
        if len(symbol.path) > 1 and not symbol.argument:
            defined[symbol.old].add(symbol.new)
    written = [
        (re.compile(rf"\bdef {old}(?=\(self)"), f"def {new}") for old, (new, *others) in defined.items() if not others
    ]
    for path in files:
        if not path.exists() or path.is_symlink():
            continue
        text = before = path.read_text()
        for pattern, new in (*rules, *(written if path.suffix == ".md" else ())):
            text = pattern.sub(new, text)
        if text != before:
            path.write_text(text)


def move(modules: dict[str, str]) -> None:
    """Move files of modules, and rewrite ``from package import module``."""
    for old, new in modules.items():
        source = file_of(old)
        source = source.parent if source.name == "__init__.py" else source
        target = ROOT / Path(*new.split("."))
        target = target if source.is_dir() else target.with_suffix(".py")
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", str(source), str(target)], cwd=ROOT, check=True)


def rewrite_imports(modules: dict[str, str]) -> None:
    """``from a.b import c`` where a.b.c moved to a.d.e becomes ``from a.d import e as c``, or e where c is not used."""
    for path in python_files():
        source = path.read_text()
        lines, tree = source.splitlines(keepends=True), ast.parse(source)
        for node in sorted(
            (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module), key=lambda n: -n.lineno
        ):
            moved = [a for a in node.names if f"{node.module}.{a.name}" in modules]
            if not moved:
                continue
            indent, out = " " * node.col_offset, []
            note = re.search(r"  #.*$", lines[node.end_lineno - 1].rstrip("\n"))  # type: ignore[operator]
            end = (note[0] if note else "") + "\n"
            if rest := [a for a in node.names if a not in moved]:
                names = ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in rest)
                out.append(f"{indent}from {node.module} import {names}{end}")
            for a in moved:
                package, name = modules[f"{node.module}.{a.name}"].rsplit(".", 1)
                local = a.asname or a.name
                out.append(f"{indent}from {package} import {name}" + (f" as {local}" if local != name else "") + end)
            assert node.end_lineno is not None
            lines[node.lineno - 1 : node.end_lineno] = out
        path.write_text("".join(lines))


def _words(path: Path, places: set[Edit]) -> dict[str, str]:
    """What is renamed in a file, old to new."""
    lines = path.read_text().split("\n")
    return {lines[edit.line][edit.start : edit.end]: edit.new for edit in places}


def _now(path: str, modules: dict[str, str]) -> str:
    """Where a file is after the modules have moved, one after another."""
    for old, new in modules.items():
        old, new = old.replace(".", "/"), new.replace(".", "/")
        if path == f"{old}.py" or path.startswith(f"{old}/"):
            path = new + path.removeprefix(old)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="count the places of every symbol, and change nothing")
    parser.add_argument("--server", default="basedpyright-langserver", help="the language server's command")
    arguments = parser.parse_args()
    modules, symbols = read_table(arguments.table)
    classes = Classes()
    where = {}
    for symbol in symbols:
        try:
            where[symbol] = positions(symbol, classes)
        except (ValueError, OSError) as error:
            print(error, file=sys.stderr)
    if len(where) < len(symbols):
        raise SystemExit("names of the table are not there; nothing was changed")
    server = Server([arguments.server, "--stdio"])
    edits: dict[Path, set[Edit]] = defaultdict(set)
    for path in {file for places in where.values() for file, _, _ in places}:
        server.open(path)
    if symbols:
        import time

        file, line, column = where[symbols[0]][0]
        server.rename(file, line, column, "warming_up")
        time.sleep(20)  # until it has read the repository: before, it answers for open files alone
    for symbol, places in where.items():
        count = 0
        for file, line, column in places:
            answer = server.rename(file, line, column, symbol.new)
            count += sum(map(len, answer.values()))
            for path, several in answer.items():
                edits[path] |= several
        print(f"{symbol} -> {symbol.new}: {len(places)} definitions, {count} places", file=sys.stderr)
    unresolved(symbols, server, edits)
    server.close()
    if arguments.dry_run:
        return
    words = {str(path.relative_to(ROOT)): _words(path, places) for path, places in edits.items()}
    before = {str(path.relative_to(ROOT)) for path in python_files()}
    apply(edits)
    if modules:
        rewrite_imports(modules)
        move(modules)
    texts(modules, symbols, True)
    moved = {path: _now(path, modules) for path in before}
    docstrings(words, moved)
    mutants(words, moved)


if __name__ == "__main__":
    main()
