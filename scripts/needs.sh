#!/bin/sh
# Installs what the tests need besides Go, where that is possible.
set -u
command -v redis-server >/dev/null 2>&1 && exit 0
sudo=
[ "$(id -u)" = 0 ] || sudo="sudo -n"
if command -v apt-get >/dev/null 2>&1; then
	echo "installing redis-server for the tests"
	{ $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq redis-server; } >/dev/null 2>&1
elif command -v apk >/dev/null 2>&1; then
	$sudo apk add --quiet redis
elif command -v dnf >/dev/null 2>&1; then
	$sudo dnf install -y -q redis || $sudo dnf install -y -q valkey
elif command -v brew >/dev/null 2>&1; then
	brew install --quiet redis
fi
command -v redis-server >/dev/null 2>&1 || echo "no redis-server, and no way to install it: the tests that need one will skip"
exit 0
