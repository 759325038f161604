// Package blackfriday is the demo of weir serve: a wave of requests that a backend cannot serve meets it twice, first
// through a proxy without limits and then through the same proxy with them. Everything runs in this process and over
// loopback, and every figure is measured in the run that reports it.
package blackfriday
