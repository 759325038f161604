package traffic

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// endless is a log that is never all in memory: 4000 lines a second, each of a client that was not there before.
type endless struct {
	lines, n int
	rest     []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		if e.n == e.lines {
			return 0, io.EOF
		}
		at := noon.Add(time.Duration(e.n/4000) * time.Second)
		e.rest = fmt.Appendf(e.rest[:0], "10.%d.%d.%d - - [%s] \"GET /items/%d HTTP/1.1\" 200 1\n", e.n>>16, e.n>>8&255, e.n&255, at.Format("02/Jan/2006:15:04:05 -0700"), e.n)
		e.n++
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// Three limits go through a log in memory that does not grow with it, though each line is a new client's. (cmd/replay in benchmarks does so with ten
// million lines, and looks at the whole process.)
func TestSimulationInBoundedMemory(t *testing.T) {
	rate := weir.Rate{Units: 5, Period: time.Second}
	limits := []*weir.Limit{
		{Name: "client", Rate: rate}, {Name: "pair", Rate: rate, Algorithm: weir.SlidingWindow}, {Name: "all", Rate: weir.Rate{Units: 3500, Period: time.Second}},
	}
	s := &Simulation{Algorithms: []weir.Algorithm{}, Policy: Policy{Limits: limits, Charge: func(e *Event, a *Ask) error {
		a.Charges = append(a.Charges, limits[0].For(e.Client), limits[1].For(e.Client+e.Path), limits[2].For(""))
		return nil
	}}}
	defer s.Close()
	const lines = 120_000
	n, half, full := 0, uint64(0), uint64(0)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	l := &Log{Files: []string{"-"}, Stdin: &endless{lines: lines}}
	err := l.Read(context.Background(), func(e *Event) error {
		switch n++; n {
		case 2:
			for _, l := range s.limits {
				l.keys.most = 1 << 13 // fewer than usual, so that fewer lines do
			}
		case lines / 2: // by now as many keys are kept as ever are
			half = heap()
		case lines:
			full = heap()
		}
		return s.Add(e)
	})
	if err != nil || n != lines {
		t.Fatal(n, err)
	}
	if full > half+half/4 {
		t.Errorf("%d MB after half of the lines, and %d MB after all", half>>20, full>>20)
	}
	r, err := s.Result(context.Background())
	if err != nil || r.Requests != lines || r.Refused == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
