#!/usr/bin/env bash
# Packages the Helm chart of a version: scripts/package_chart.sh 1.2.3 FOLDER. Its images have that version by default.
# A chart's version is a semantic one: 1.2.3rc1 becomes 1.2.3-rc.1.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?a version is needed, as 1.2.3}
folder=${2:?a folder is needed}
PATH=$PWD/.venv/bin:$PATH # helm is there, or elsewhere on the path
chart=$(sed -E 's/(a|b|rc)([0-9]+)$/-\1.\2/; s/\.dev([0-9]+)$/-dev.\1/' <<<"$version")
helm package deploy/helm/mvprune --version "$chart" --app-version "$version" --destination "$folder"
