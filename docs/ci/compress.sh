#!/bin/sh
# Prunes a model as a step of a pipeline; the exit code says whether the result is good enough.
#
#   MODEL=my-model TRAIN=server:/data/train.jsonl VALIDATION=server:/data/dev.tsv \
#     sh compress.sh --density 0.10 --gate 'accuracy>=80' --gate 'delta_accuracy>=-2' --gate 'bytes<=25MB'
#
# Model and data are files of this machine, or named as the server finds them. What is given here goes to `mvpctl
# submit`. MVPRUNE_ADDRESS and MVPRUNE_TOKEN lead to the server. Leaves artifact/, result.json, summary.md and gates.xml
# in the folder OUT.
set -u
: "${MODEL:?is not set}" "${TRAIN:?is not set}" "${VALIDATION:?is not set}"
out="${OUT:-compressed}"
mkdir -p "$out"

mvpctl submit --model "$MODEL" --train "$TRAIN" --validation "$VALIDATION" "$@" \
  --timeout "${TIMEOUT:-14400}" --download "$out/artifact" \
  --summary "$out/summary.md" --junit "$out/gates.xml" -o json >"$out/result.json"
code=$?

case $code in
  0) echo "good enough: $out/artifact" ;;
  5) echo "a gate was missed: see $out/summary.md" ;;
  6) echo "not done yet: the same command in the same run waits on" ;;
esac
exit "$code"
