#!/bin/sh
# Installs what the tests need besides Go, where that is possible: a Redis server, and Chromium to look at pages with.
set -u
sudo=
[ "$(id -u)" = 0 ] || sudo="sudo -n"

# need NAME "PROGRAMS" APT APK DNF BREW: any of the programs will do.
need() {
	for program in $2; do
		command -v "$program" >/dev/null 2>&1 && return
	done
	echo "installing $1 for the tests"
	if command -v apt-get >/dev/null 2>&1; then
		{ $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "$3"; } >/dev/null 2>&1
	elif command -v apk >/dev/null 2>&1; then
		$sudo apk add --quiet "$4"
	elif command -v dnf >/dev/null 2>&1; then
		for package in $5; do
			$sudo dnf install -y -q "$package" && break
		done
	elif command -v brew >/dev/null 2>&1; then
		brew install --quiet "$6"
	fi
	for program in $2; do
		command -v "$program" >/dev/null 2>&1 && return
	done
	echo "no $1, and no way to install it: the tests that need one will skip"
}

need redis-server "redis-server" redis-server redis "redis valkey" redis
need chromium "chromium chromium-browser google-chrome" chromium chromium chromium chromium
exit 0
