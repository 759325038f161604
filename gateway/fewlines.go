package gateway

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	linesAPeriod = 10 // each about another key
	linePeriod   = time.Minute
)

// fewLines bounds what a flood writes to the log, and so what it costs in time and disk: in a period there is a line for
// each of the first keys, and at its end one with the number of all others. Its memory does not grow with the keys, which strangers
// invent. A period begins with a line and is followed by another while there is anything to count. A nil fewLines lets every line pass.
type fewLines struct {
	log   *slog.Logger
	level slog.Level
	text  string    // of the line with the number
	about slog.Attr // what all lines have in common

	known [linesAPeriod]atomic.Uint64 // hashes of the keys that have had their line; 0: free, and so are all that follow
	more  atomic.Int64                // lines that were not written

	mu    sync.Mutex  // held to change known
	timer *time.Timer // of the period; nil: none
	began time.Time
}

// pass reports whether a line about a key of this hash is to be written, and counts it if not. Once the period has its lines, that takes no lock.
func (l *fewLines) pass(hash uint64) bool {
	if l == nil {
		return true
	}
	hash = max(hash, 1)
	for i := range l.known {
		switch l.known[i].Load() {
		case hash:
			l.more.Add(1)
			return false
		case 0:
			return l.first(hash)
		}
	}
	l.more.Add(1)
	return false
}

// first is pass where there is room for another key, or was a moment ago.
func (l *fewLines) first(hash uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.known {
		switch l.known[i].Load() {
		case hash:
			l.more.Add(1)
			return false
		case 0:
			l.known[i].Store(hash)
			if l.timer == nil {
				l.began = time.Now()
				l.timer = time.AfterFunc(linePeriod, l.turn)
			}
			return true
		}
	}
	l.more.Add(1)
	return false
}

// turn ends a period, and begins the next if this one was not quiet.
func (l *fewLines) turn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil { // close was faster
		return
	}
	if l.end() {
		l.timer.Reset(linePeriod)
	} else {
		l.timer = nil
	}
}

// end forgets the keys and says how many lines there would have been; false: none. l.mu is held. A line that is counted at this moment may
// be part of the next number.
func (l *fewLines) end() bool {
	for i := range l.known {
		l.known[len(l.known)-1-i].Store(0)
	}
	period := time.Since(l.began)
	l.began = l.began.Add(period)
	n := l.more.Swap(0)
	if n > 0 {
		l.log.LogAttrs(context.Background(), l.level, l.text, l.about, slog.Int64("count", n), slog.Duration("period", period.Round(time.Millisecond)))
	}
	return n > 0
}

// close ends the period that there is, before its time.
func (l *fewLines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
		l.end()
	}
}
