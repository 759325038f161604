package quota

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestRun runs the demo in a tenth of its time. What holds on any machine: weir loses nothing, and against a server that counts any
// window it is not refused; nobody is faster than possible.
func TestRun(t *testing.T) {
	d := Default
	d.Items = 15
	d.Window /= 10
	d.Answer /= 10
	d.Way = 3 * time.Millisecond
	r, err := d.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.Ways {
		if w.Fetched+w.Lost != r.Items || w.Requests < w.Fetched+w.Refused {
			t.Errorf("the books of %+v do not balance", w)
		}
		if w.Name == "weir" && w.Lost > 0 {
			t.Errorf("weir has lost items: %+v", w)
		}
		if w.Server == "any window" && w.Fetched == r.Items && w.Seconds < r.Bound {
			t.Errorf("faster than possible (%v s): %+v", r.Bound, w)
		}
	}
	if best := r.Best(); best == nil || best.Refused != 0 || best.Fetched != r.Items {
		t.Errorf("weir: %+v", best)
	}
	if none := r.Ways[0]; none.Refused == 0 {
		t.Errorf("without a gate nothing was refused: %+v", none)
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || strings.Count(text.String(), "\n") < len(r.Ways)+4 {
		t.Errorf("%v:\n%s", err, &text)
	}
}
