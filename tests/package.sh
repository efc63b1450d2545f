#!/usr/bin/env bash
# The built wheel and sdist hold each file once, and the wheel works in an empty environment from any folder.
set -euo pipefail
root=$PWD
python=$root/${BIN:-.venv/bin}/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m build --quiet --outdir "$work/dist" .
for archive in "$work"/dist/*; do
    "$python" - "$archive" <<'PY'
import collections, sys, tarfile, zipfile
path = sys.argv[1]
names = zipfile.ZipFile(path).namelist() if path.endswith(".whl") else tarfile.open(path).getnames()
twice = [n for n, count in collections.Counter(names).items() if count > 1]
assert not twice, f"{path}: files shipped twice: {twice}"
linked = [n for n in names if n.split("/")[-1] in ("models", "inference") and n.count("/") < 2 and "mpmtl_prob/" not in n]
linked += [n for n in names if n.startswith(("models/", "inference/"))]
assert not linked, f"{path}: the top-level links were shipped: {linked}"
assert any(n.endswith("mpmtl_prob/models/shared_covariance.py") for n in names), f"{path}: the models are missing"
studies = any("studies/papers/" in n for n in names)
assert studies != path.endswith(".whl"), f"{path}: studies belong into the sdist alone"
assert any(n.endswith("py.typed") for n in names), f"{path}: py.typed is missing"
print(f"{path.split('/')[-1]}: {len(names)} files, each once")
PY
done

"$python" -m venv --without-pip "$work/empty"
"$python" -m pip --python "$work/empty/bin/python" install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt "$work"/dist/*.whl
cd "$work"
"$work/empty/bin/python" -W error::SyntaxWarning - <<'PY'
import mpmtl_prob as mp
train, _, _ = mp.datasets.synthetic_low_rank(num_tasks=20, num_features=3, rows=10, test_rows=2)
print(mp.release(train, epsilon=1.0))
PY
"$work/empty/bin/mpmtl-prob" --help > /dev/null
"$work/empty/bin/mpmtl-prob" example trial
"$work/empty/bin/mpmtl-prob" message --study trial/study.toml --csv trial/H01/patients.csv --yes --out trial/inbox/H01.json 2> /dev/null
if said=$("$work/empty/bin/mpmtl-prob" reproduce fig2 2>&1); then exit 1; fi
grep --quiet "clone the repository" <<< "$said"
echo "the wheel works in an empty environment"
