#!/bin/sh
# Makes the pictures in docs/pictures from the running project, in headless Chromium: what the commands of README.md give.
set -eu
cd "$(dirname "$0")/.."
out=docs/pictures
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chromium=$(command -v chromium || command -v chromium-browser)

# picture PAGE WIDTH,HEIGHT NAME
picture() {
	"$chromium" --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync \
		--user-data-dir="$tmp/profile" --hide-scrollbars --window-size="$2" --screenshot="$tmp/$3.png" "file://$1" 2>/dev/null
}

go build -o "$tmp/weir" ./cmd/weir
"$tmp/weir" demo watch --out "$tmp/watch/site" >/dev/null
picture "$tmp/watch/site/index.html" 1280,900 watch
"$tmp/weir" simulate -c examples/shop.yaml --scenario examples/blackfriday.yaml --quiet --html "$tmp/simulate.html" >/dev/null
picture "$tmp/simulate.html" 1100,1500 simulate
WEIR_PICTURES=$tmp go test -count=1 -run 'Browser' ./gateway
cp "$tmp/watch.png" "$tmp/simulate.png" "$tmp/dashboard.png" "$out"
