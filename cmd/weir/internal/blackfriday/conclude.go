package blackfriday

import (
	"fmt"
	"strings"
)

// conclude says in words what was measured, whatever it is.
func (r *Report) conclude() {
	say := func(format string, args ...any) {
		r.Conclusion = append(r.Conclusion, fmt.Sprintf(format, args...))
	}
	without, with := &r.Acts[0], &r.Acts[1]
	before, after := &without.Classes[orders], &with.Classes[orders]
	client := &with.Classes[runawayClient]

	if share(before) >= 0.99 {
		say("Without weir the backend kept up and %s of the orders were served: this wave is no more than it can take.",
			percent(before.Served, before.Sent))
	} else {
		say("Without weir %s of the orders were served: %s of the backend's work went into requests that it had given up.",
			percent(before.Served, before.Sent), percent(without.Wasted, without.Worked))
	}
	switch {
	case after.Served == 0:
		say("With weir none were.")
	case share(before) >= 0.99:
		say("With weir %s were, 99 of 100 within %s ms.", percent(after.Served, after.Sent), short(after.P99))
	default:
		say("With weir %s were, 99 of 100 within %s ms, and the backend served %s requests in all, not %s.", percent(after.Served, after.Sent),
			short(after.P99), count(float64(with.all().Served)), count(float64(without.all().Served)))
	}
	reads := &with.Classes[backOffice]
	gave := "gave way"
	if share(reads) >= 0.99 {
		gave = "had room too"
	}
	say("Back-office reads %s (%s served), and of the runaway client's %s requests %s were served.",
		gave, percent(reads.Served, reads.Sent), count(float64(client.Sent)), count(float64(client.Served)))

	if peak := classes[orders].share * r.Wave.Peak; share(after) < 0.99 && peak > r.Limits[0].perSecond() {
		say("Orders alone came at up to %s a second: more than the backend serves, so that some were refused too.", count(peak))
	} else if share(after) < 0.99 {
		say("That is less than it should be: %s orders were refused, %s failed and %s got no answer.",
			count(float64(after.Refused)), count(float64(after.Failed)), count(float64(after.Unanswered)))
	}
	if share(after) < share(before) {
		say("In this run the orders did better without weir.")
	}
	r.concludeLate(say)
}

// concludeLate owns up to requests that were sent late, if they are more than one in a hundred.
func (r *Report) concludeLate(say func(string, ...any)) {
	var acts, shares, most []string
	for _, a := range r.Acts {
		if all := a.all(); float64(all.Late) > 0.01*float64(all.Sent) {
			acts = append(acts, a.Name)
			shares = append(shares, percent(all.Late, all.Sent))
			most = append(most, short(all.MaxLate)+" ms")
		}
	}
	if len(acts) > 0 {
		say("This machine does both sides and was busy: %s of the requests (%s) left more than 10 ms late, %s at the most, which is in their latencies.",
			strings.Join(shares, " and "), strings.Join(acts, ", "), strings.Join(most, " and "))
	}
}

func (l Limit) perSecond() float64 { return float64(l.Rate.Units) / l.Rate.Period.Seconds() }

func share(c *Class) float64 { return float64(c.Served) / float64(max(1, c.Sent)) }

func (a *Act) all() *Class { return &a.Classes[len(a.Classes)-1] }
