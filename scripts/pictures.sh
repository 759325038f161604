#!/bin/sh
# Makes the pictures in docs/pictures from the running project, in headless Chromium.
set -eu
cd "$(dirname "$0")/.."
out=docs/pictures
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chromium=$(command -v chromium || command -v chromium-browser)
WEIR_PICTURES=$tmp go test -count=1 -run 'Browser' ./vulnwatch ./gateway
go run ./cmd/weir simulate -c examples/shop.yaml --scenario examples/blackfriday.yaml --quiet --html "$tmp/simulate.html" >/dev/null
"$chromium" --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync \
	--user-data-dir="$tmp/profile" --hide-scrollbars --window-size=1100,1500 --screenshot="$tmp/simulate.png" "file://$tmp/simulate.html" 2>/dev/null
cp "$tmp/index-light.png" "$out/watch.png"
cp "$tmp/dashboard.png" "$out/dashboard.png"
cp "$tmp/simulate.png" "$out/simulate.png"
