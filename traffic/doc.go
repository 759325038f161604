// Package traffic is requests over time: when they arrive, how to send them, what became of them, and what limits would have done with them.
//
// A [Profile] is a rate that changes with time; [Profile.Even], [Profile.Poisson] and [Profile.Bursts] turn it into
// instants. A [Load] sends requests at such instants, open-loop: an answer that is late delays no later request, and
// its latency counts from the instant at which it should have been sent. A [Tally] counts the results, and a [Drive] sends
// a whole [Scenario], which is expected traffic written down.
//
// A [Log] reads access logs, whatever their size, as a stream of [Event]; a Scenario makes one up. A [Simulation] puts such a
// stream through the limits of a [Policy] in virtual time, with the code that servers run, and says what would have been refused, whose and
// when. A [Report] is a page about it for people.
package traffic
