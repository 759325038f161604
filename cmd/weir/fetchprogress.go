package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
)

// fetchProgress is one line on a terminal: how far a run is, what it is waiting for, and when it will be done.
// Elsewhere it is quiet.
type fetchProgress struct {
	w     io.Writer
	plan  batch.Plan
	began time.Time
	stop  chan struct{}
	ended sync.WaitGroup

	mu       sync.Mutex
	done     int
	ledger   batch.Ledger
	sent     map[any]time.Time // of the attempts under way
	answered int
	taken    time.Duration // by them together
	opens    time.Time     // when the gate opens, as far as was said last
	closed   bool          // by a refusal
}

func newFetchProgress(w io.Writer, quiet bool, plan batch.Plan) *fetchProgress {
	p := &fetchProgress{w: w, plan: plan, began: time.Now(), sent: make(map[any]time.Time)}
	file, ok := w.(*os.File)
	if quiet || !ok || !term.IsTerminal(int(file.Fd())) {
		return p
	}
	p.stop = make(chan struct{})
	p.ended.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(w, "\r\x1b[K%s", p.line(time.Now()))
			case <-p.stop:
				fmt.Fprint(w, "\r\x1b[K")
				return
			}
		}
	})
	return p
}

func (p *fetchProgress) end() {
	if p.stop != nil {
		close(p.stop)
		p.ended.Wait()
	}
}

// event follows the transport, and adds to the account of an item how long it waited.
func (p *fetchProgress) event(e httplimit.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case httplimit.Waiting:
		p.opens, p.closed = time.Now().Add(e.Wait), e.Closed
		batch.CounterOf(e.Request.Context()).Wait(e.Wait)
	case httplimit.Held:
		p.opens, p.closed = time.Now().Add(e.Wait), true
	case httplimit.Retrying:
		batch.CounterOf(e.Request.Context()).Wait(e.Wait)
	case httplimit.Sent:
		p.sent[e.Request] = time.Now()
	case httplimit.Answered, httplimit.Failed:
		if at, ok := p.sent[e.Request]; ok {
			p.answered++
			p.taken += time.Since(at)
			delete(p.sent, e.Request)
		}
	}
}

func (p *fetchProgress) item(_ batch.Record, sofar batch.Ledger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.ledger = sofar.Items, sofar
}

func (p *fetchProgress) line(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d", p.done, p.plan.Requests)
	if p.ledger.NotFetched > 0 {
		fmt.Fprintf(&b, " · %d not fetched", p.ledger.NotFetched)
	}
	if p.ledger.Refusals > 0 {
		fmt.Fprintf(&b, " · %d refused", p.ledger.Refusals)
	}
	wait := max(0, p.opens.Sub(now))
	switch {
	case wait > 0 && p.closed:
		fmt.Fprintf(&b, " · the server asks to wait %v", wait.Round(time.Second))
	case wait > 0:
		fmt.Fprintf(&b, " · the gate opens in %v", wait.Round(100*time.Millisecond))
	case len(p.sent) == 1:
		b.WriteString(" · waiting for an answer")
	case len(p.sent) > 0:
		fmt.Fprintf(&b, " · waiting for %d answers", len(p.sent))
	}
	rest := p.plan
	rest.Requests = p.plan.Requests - p.done
	if p.answered > 0 {
		rest.Latency = p.taken / time.Duration(p.answered)
	}
	// The gate run in virtual time, from when it opens.
	if eta := wait + rest.Simulate(); rest.Requests > 0 {
		fmt.Fprintf(&b, " · about %v left", eta.Round(time.Second))
	}
	return b.String()
}
