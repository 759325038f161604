// Package traffic is requests over time: when they arrive, how to send them, and what became of them.
//
// A [Profile] is a rate that changes with time; [Profile.Even], [Profile.Poisson] and [Profile.Bursts] turn it into
// instants. A [Load] sends requests at such instants, open-loop: an answer that is late delays no later request, and
// its latency counts from the instant at which it should have been sent. A [Tally] counts the results.
//
// A [Scenario] is traffic that is expected, written down. A [Drive] sends it to a real server, under a ceiling, and tries
// whether the server's Retry-After is true.
package traffic
