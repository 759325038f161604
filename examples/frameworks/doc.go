// Package frameworks shows weir's limits inside chi, echo and gin. In front of them it needs none of this: each router is an
// http.Handler, and
//
//	http.ListenAndServe(":8080", limits.Middleware(router))
//
// limits all it serves. Inside, as the router's own middleware, the limits can stand behind its authentication and on
// some of its routes only; the functions [Echo] and [Gin] then see to it that rules that count only certain answers (a login
// with Only) learn the status. For chi there is nothing to do, its middleware is net/http's.
//
// It is a module of its own, so that weir does not depend on the frameworks. Copy the few lines that you need.
package frameworks
