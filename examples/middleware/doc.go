// Package middleware shows httplimit as plain net/http middleware, one thing at a time. Each example is a test: its output is
// what the code really prints.
//
// For chi, echo and gin see examples/frameworks; for a whole service, examples/orderapi.
package middleware
