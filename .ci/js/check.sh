#!/usr/bin/env bash
# check.sh TOOLS FILES: format, lint and type check the JavaScript of folder FILES with the tools that npm put into TOOLS.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
tools="$(cd "$1" && pwd)" && files="$(cd "$2" && pwd)" || exit 2
code=0
"$tools/node_modules/.bin/prettier" --check --print-width 100 --no-config "$files"/*.js || code=1
# Both look for their configuration beside what they check: a copy of the files lies beside it.
work="$(mktemp -d)" && trap 'rm -rf "$work"' EXIT
cp "$here/eslint.config.js" "$here/tsconfig.json" "$here/package.json" "$work" && mkdir "$work/js"
cp "$files"/*.js "$work/js"
cp "$files"/*.d.ts "$work/js" 2>/dev/null
ln -s "$tools/node_modules" "$work/node_modules"
cd "$work" || exit 2
node_modules/.bin/eslint js || code=1
node_modules/.bin/tsc --project tsconfig.json || code=1
exit $code
