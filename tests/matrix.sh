#!/bin/sh
# `make test-matrix`: `make demo` and `make test` where other people have them. Each row is a copy of what is committed,
# with an environment of its own; about ten minutes a row. ROWS='python3.12 bare' chooses; without it, all.
# TESTS='tests/unit/core tests/e2e/test_encodings.py' runs these alone, without lint: a minute or two beside the set-up.
#
#   pythonX.Y    that Python, if there is one on the PATH or in pyenv
#   bare         an ordinary user, an unpacked archive in a path with a space, LANG=C, a home of 2 MB, and no git, browser,
#                sshd, compiler or PostgreSQL (as root only: it makes a user and a file system in memory)
#   busy         `make test` by nohup from a script, beside four loops that keep the cores busy
#   installed-pythonX.Y  the wheel, then the sdist, in an empty environment of that Python: tests/smoke.py, the demo among it
#   launchers    the wheel by `uvx` and `pipx run`, which a user has without installing anything first
#   read-only    the commands that a user tries first, with a home that cannot be written: an error, never a traceback
#
# The last lines are the rows of the table in CONTRIBUTING.md.
set -u
rows=${*:-python3.11 python3.12 python3.13 python3.14 installed-python3.11 installed-python3.12 installed-python3.13 installed-python3.14 launchers bare busy read-only}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
chmod 755 "$work"
loops=
trap 'kill $loops 2>/dev/null; umount "$work/home" 2>/dev/null; rm -rf "$work"' EXIT
table=$work/table
machine=$(uname -m)
TESTS=${TESTS:-}
goal=test
[ -n "$TESTS" ] && goal=unit

say() { printf '| %s | %s | %s | %s |\n' "$1" "$machine" "$(date +%Y-%m-%d)" "$2" >>"$table"; }

# The interpreter of a version: one on the PATH, else pyenv's.
python_of() {
  for found in "$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"${1#python}".*/bin/python3; do
    "$found" -c "import sys; sys.exit('python%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null && echo "$found" && return
  done
  return 1
}

copy() { mkdir -p "$1" && git -C "$root" archive HEAD | tar -x -C "$1"; }

# What the last line of the tests says, or how the commands ended.
outcome() {
  found=$(grep -aE '[0-9]+ passed' "$1" | tail -1 | sed 's/=//g; s/^ *//')
  echo "${TESTS:+of \`$TESTS\`: }${found:-failed: $(tail -1 "$1" | cut -c1-80)}"
}

python_row() {
  python=$(python_of "$1") || { say "$1" "not run: there is no $1 here"; return; }
  copy "$work/$1" && (cd "$work/$1" && make demo PYTHON="$python" && make $goal TESTS="$TESTS" PYTHON="$python") >"$work/$1.log" 2>&1
  say "$1" "$(outcome "$work/$1.log")"
  tail -40 "$work/$1.log"
  rm -rf "${work:?}/$1"
}

# Both archives, built once.
archives() {
  [ -d "$work/dist" ] && return
  copy "$work/source" && python3 -m venv "$work/builder" && "$work/builder/bin/python" -m pip install -q hatchling &&
    (cd "$work/source" && "$work/builder/bin/python" -m hatchling build -d "$work/dist") >/dev/null 2>&1
}

installed_row() {
  python=$(python_of "${1#installed-}") || { say "$1" "not run: there is no ${1#installed-} here"; return; }
  archives
  for archive in "$work"/dist/*.whl "$work"/dist/*.tar.gz; do
    "$python" -m venv "$work/empty" && "$work/empty/bin/python" -m pip install -q "$archive[onnxruntime,hub,mcp]" >"$work/$1.log" 2>&1 &&
      (cd "$work" && "$work/empty/bin/python" -W error "$root/tests/smoke.py") >>"$work/$1.log" 2>&1
    say "$1" "$(basename "$archive"): $(tail -1 "$work/$1.log")"
    grep -A8 FAILED "$work/$1.log"
    rm -rf "$work/empty"
  done
}

launchers_row() {
  archives
  python3 -m venv "$work/launchers" && "$work/launchers/bin/python" -m pip install -q uv pipx
  wheel=$(echo "$work"/dist/*.whl)
  uvx=$("$work/launchers/bin/uvx" --from "$wheel" inferometer --version 2>&1 | tail -1)
  pipx=$("$work/launchers/bin/pipx" run --spec "$wheel" inferometer --version 2>&1 | tail -1)
  case "$uvx $pipx" in *[0-9].[0-9]*\ *[0-9].[0-9]*) say launchers "uvx: $uvx; pipx: $pipx" ;; *) say launchers "failed: $uvx; $pipx" ;; esac
}

# A PATH that has everything but what a bare machine lacks.
bare_path() {
  mkdir -p "$work/bin"
  for tool in /usr/local/bin/* /usr/bin/* /bin/* /usr/sbin/*; do
    case $(basename "$tool") in
      git* | chromium* | sshd | cc | c++ | c8* | c9* | gcc* | g++* | clang* | *-linux-gnu-* | psql | pg_* | postgres*) ;;
      *) ln -sf "$tool" "$work/bin/" ;;
    esac
  done
  echo "$work/bin"
}

# As an ordinary user, with nothing of this shell's environment but where pip finds packages here.
more_packages=$(python3 -m pip config get global.extra-index-url 2>/dev/null)
as_user() {
  id inferometer-matrix >/dev/null 2>&1 || useradd --no-create-home inferometer-matrix
  setpriv --reuid=inferometer-matrix --regid=inferometer-matrix --clear-groups \
    env -i LANG=C HOME="$work/home" PATH="$(bare_path)" TMPDIR="$work/temporary" ${PIP_FIND_LINKS:+PIP_FIND_LINKS="$PIP_FIND_LINKS"} \
    ${more_packages:+PIP_EXTRA_INDEX_URL="$more_packages"} "$@"
}

user_python() { # one that the user may run
  for found in "$(python_of python3.11)" /usr/bin/python3; do
    as_user "$found" -c 'import ensurepip' 2>/dev/null && echo "$found" && return
  done
  return 1
}

bare_row() {
  folder="$work/a path with a space"
  mkdir -p "$work/home" "$work/temporary" && chmod 777 "$work/temporary"
  [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=2m,mode=777 none "$work/home" || { say bare "not run: needs root"; return; }
  python=$(user_python) || { say bare "not run: an ordinary user has no Python here"; umount "$work/home"; return; }
  copy "$folder" && chown -R inferometer-matrix "$folder"
  # A model of 100 MB does not fit into that home: the demo must say so, and is not what the row is judged by.
  as_user sh -c 'cd "$1" && { make demo PYTHON="$2"; make $3 TESTS="$4" PYTHON="$2"; }' sh "$folder" "$python" $goal "$TESTS" >"$work/bare.log" 2>&1
  grep -q "do not fit in" "$work/bare.log" || { say bare "failed: the demo did not say that its model does not fit"; return; }
  say "bare" "$(outcome "$work/bare.log")"
  tail -40 "$work/bare.log"
  umount "$work/home"
}

# Signals are ignored in every child, as many CI systems leave them, and the path has a space.
busy_row() {
  folder="$work/a busy machine"
  copy "$folder" && (cd "$folder" && make .venv/.dev) >"$work/busy.log" 2>&1
  for _ in 1 2 3 4; do
    python3 -c 'while True: pass' &
    loops="$loops $!"
  done
  begun=$(date +%s)
  (cd "$folder" && nohup make $goal TESTS="$TESTS") >>"$work/busy.log" 2>&1 </dev/null &
  wait $!
  kill $loops
  say busy "$(outcome "$work/busy.log") after $((($(date +%s) - begun) / 60)) min"
  tail -40 "$work/busy.log"
}

read_only_row() {
  folder=$work/read-only
  [ "$(id -u)" = 0 ] || { say read-only "not run: needs root"; return; }
  mkdir -p "$work/home" "$work/temporary" && chmod 755 "$work/home" && chmod 777 "$work/temporary"
  python=$(user_python) || { say read-only "not run: an ordinary user has no Python here"; return; }
  copy "$folder" && chown -R inferometer-matrix "$folder"
  as_user sh -c 'cd "$1" && make .venv/.user PYTHON="$2"' sh "$folder" "$python" >"$work/read-only.log" 2>&1
  for command in "predict llama-3.2-1b --on nvidia-h200" devices runs demo "profile mobilenet-v2 --no-guard" "profile mobilenet-v2 --no-guard --no-store" "explain last" "doctor --interval 50ms" "hub token list"; do
    as_user "$folder/.venv/bin/inferometer" $command >>"$work/read-only.log" 2>&1
    code=$?
    [ $code -le 2 ] || echo "Traceback: $command ended with $code" >>"$work/read-only.log"
  done
  say "read-only" "$(grep -c Traceback "$work/read-only.log") tracebacks in 9 commands"
}

for row in $rows; do
  echo "== $row"
  case $row in
    python*) python_row "$row" ;;
    installed-*) installed_row "$row" ;;
    launchers) launchers_row ;;
    bare) bare_row ;;
    busy) busy_row ;;
    read-only) read_only_row ;;
    *) echo "There is no row $row: see the top of tests/matrix.sh."; exit 2 ;;
  esac
done
echo
cat "$table"
! grep -E 'failed|[1-9][0-9]* tracebacks' "$table" | grep -qv ' 0 of [0-9]* failed'
