package traffic

import "time"

// timeline counts over time in few steps, which grow with the time that there is: seconds at first, then 5 s, 15 s, a minute…
type timeline struct {
	start time.Time
	step  int // of timelineSteps
	spans []span
}

// span is what happened in one step.
type span struct {
	asked, refused int64
	peak           int64 // the most that one key asked for in one period
}

const timelineSpans = 360

// Each divides the next.
var timelineSteps = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
	6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour, 364 * 24 * time.Hour,
}

// at is the span of an instant, none of which may come before the first one.
func (t *timeline) at(at time.Time) *span {
	if t.spans == nil {
		t.start = at.Truncate(timelineSteps[0])
	}
	for {
		i := int(at.Sub(t.start) / timelineSteps[t.step])
		if i < timelineSpans || t.step == len(timelineSteps)-1 {
			for len(t.spans) <= i {
				t.spans = append(t.spans, span{})
			}
			return &t.spans[i]
		}
		t.widen()
	}
}

// widen makes one of several spans.
func (t *timeline) widen() {
	t.step++
	start := t.start.Truncate(timelineSteps[t.step])
	var wide []span
	for i, s := range t.spans {
		at := t.start.Add(time.Duration(i) * timelineSteps[t.step-1])
		j := int(at.Sub(start) / timelineSteps[t.step])
		for len(wide) <= j {
			wide = append(wide, span{})
		}
		w := &wide[j]
		w.asked += s.asked
		w.refused += s.refused
		w.peak = max(w.peak, s.peak)
	}
	t.start, t.spans = start, wide
}

func (t *timeline) width() time.Duration { return timelineSteps[t.step] }

// worst finds the minute with the most of something.
type worst struct {
	minute         time.Time
	asked, refused int64
	Most           Minute
}

// Minute is a minute of a simulation.
type Minute struct {
	At      time.Time `json:"at"`
	Asked   int64     `json:"asked"`
	Refused int64     `json:"refused"`
}

func (w *worst) add(at time.Time, refused bool) {
	if m := at.Truncate(time.Minute); !m.Equal(w.minute) {
		w.minute, w.asked, w.refused = m, 0, 0
	}
	w.asked++
	if refused {
		w.refused++
	}
	if w.refused > w.Most.Refused || w.refused == w.Most.Refused && w.asked > w.Most.Asked {
		w.Most = Minute{w.minute, w.asked, w.refused}
	}
}
