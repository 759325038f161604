package traffic

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Log reads access logs as one stream of events in the order of time, however many lines and files there are: it keeps no more
// than MaxPending lines of each. Files may be compressed with gzip. A line that cannot be read is counted, and the first ones are kept for
// showing; none disappears. A compressed file that breaks off is read as far as it goes.
type Log struct {
	// Files are the names of the files, which may overlap in time; "-" is Stdin.
	Files []string
	Stdin io.Reader

	// Format is that of all files; nil means the one of combined, json and common that reads most of a file's first lines.
	Format *Format

	// Headers are the names of request header fields that are kept where Format is nil.
	Headers []string

	// Disorder is how far out of order lines may be: servers write a line when a request ends, and some with the time at which it
	// began. Zero means 10 s. A line that comes later still is counted and takes the time of the one before it.
	Disorder time.Duration

	// MaxPending is how many lines of a file are kept for putting them in order; zero means 100,000.
	MaxPending int

	// Whole leaves requests at the whole second that a log has, and so all of a second at one instant. Otherwise they are
	// spread evenly over it.
	Whole bool

	// Keep is how many unreadable lines are kept; zero means 10.
	Keep int

	Stats LogStats // of Read, while it runs and after it
}

// LogStats says what was read. Lines is the sum of Events, Unreadable and Empty.
type LogStats struct {
	Bytes      int64     `json:"bytes"` // as they are in the files, compressed or not
	Lines      int64     `json:"lines"`
	Events     int64     `json:"events"`
	Unreadable int64     `json:"unreadable"`
	Empty      int64     `json:"empty"`
	Late       int64     `json:"late"`    // of Events: too far out of order, and moved
	Spread     int64     `json:"spread"`  // of Events: spread over their second
	Bad        []BadLine `json:"bad"`     // the first unreadable lines of each file
	Broken     []BadLine `json:"broken"`  // compressed files that break off, with the line that would be next
	Formats    []string  `json:"formats"` // of the files
}

// BadLine is a line that could not be read.
type BadLine struct {
	File string `json:"file"`
	Line int64  `json:"line"` // from 1
	Text string `json:"text,omitempty"`
	Why  string `json:"why,omitempty"`
}

// String is one line: file:line: why: text.
func (b BadLine) String() string {
	if b.Why == "" {
		return fmt.Sprintf("%s:%d", b.File, b.Line)
	}
	return fmt.Sprintf("%s:%d: %s: %q", b.File, b.Line, b.Why, b.Text)
}

const (
	maxLine           = 64 << 10
	defaultDisorder   = 10 * time.Second
	defaultMaxPending = 100_000
	defaultKeep       = 10
	shownText         = 120
)

// Read calls f with the events in the order of time. It ends with the error of f, of reading a file, or of ctx. The Event is
// f's until it returns; f may copy it.
func (l *Log) Read(ctx context.Context, f func(*Event) error) (err error) {
	l.Stats = LogStats{Bad: []BadLine{}, Broken: []BadLine{}, Formats: []string{}} // in JSON a list, if an empty one
	var streams streams
	defer func() {
		for _, s := range streams.opened {
			s.close()
		}
	}()
	for _, name := range l.Files {
		s, err := l.open(name)
		if err != nil {
			return err
		}
		streams.opened = append(streams.opened, s)
		l.Stats.Formats = append(l.Stats.Formats, s.format.String())
		if err := s.advance(); err != nil {
			return err
		}
		if s.head() != nil {
			streams.heads = append(streams.heads, s)
		}
	}
	heap.Init(&streams)
	for n := 0; streams.Len() > 0; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		s := streams.heads[0]
		if err := f(s.head()); err != nil {
			return err
		}
		if s.sent++; s.head() == nil {
			if err := s.advance(); err != nil {
				return err
			}
		}
		if s.head() == nil {
			heap.Pop(&streams)
		} else {
			heap.Fix(&streams, 0)
		}
	}
	return nil
}

// streams are the files, the one with the earliest event first.
type streams struct{ heads, opened []*stream }

func (s *streams) Len() int           { return len(s.heads) }
func (s *streams) Less(i, j int) bool { return s.heads[i].head().At.Before(s.heads[j].head().At) }
func (s *streams) Swap(i, j int)      { s.heads[i], s.heads[j] = s.heads[j], s.heads[i] }
func (s *streams) Push(any)           {}
func (s *streams) Pop() any {
	s.heads = s.heads[:len(s.heads)-1]
	return nil
}

// stream is one file being read.
type stream struct {
	log    *Log
	name   string
	close  func()
	r      *bufio.Reader
	format *Format
	m      scratch
	line   int64
	bad    int // lines kept

	pending pending // to be put in order
	newest  time.Time
	last    time.Time // of the event that went out last
	ready   []Event   // in order
	sent    int       // of ready
	ended   bool
}

// head is the next event in order, or nil.
func (s *stream) head() *Event {
	if s.sent == len(s.ready) {
		return nil
	}
	return &s.ready[s.sent]
}

// counter counts what is read.
type counter struct {
	r io.Reader
	n *int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	*c.n += int64(n)
	return n, err
}

func (l *Log) open(name string) (*stream, error) {
	s := &stream{log: l, name: name, close: func() {}, format: l.Format}
	var raw io.Reader = l.Stdin
	if name == "-" {
		s.name = "standard input"
		if raw == nil {
			return nil, errors.New("traffic: no standard input")
		}
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		raw, s.close = file, func() { file.Close() }
	}
	s.r = bufio.NewReaderSize(&counter{raw, &l.Stats.Bytes}, maxLine)
	if magic, _ := s.r.Peek(2); string(magic) == "\x1f\x8b" {
		z, err := gzip.NewReader(s.r)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("traffic: %s: %w", s.name, err)
		}
		s.r = bufio.NewReaderSize(z, maxLine)
	}
	if mark, _ := s.r.Peek(3); string(mark) == "\ufeff" {
		s.r.Discard(3)
	}
	if s.format == nil {
		begin, _ := s.r.Peek(maxLine)
		s.format = detect(string(begin), l.Headers)
	}
	return s, nil
}

// detect is the format that reads most of some lines; of equals the one that says more.
func detect(text string, headers []string) *Format {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) > 1 { // what is behind the last line break is cut off, or empty
		lines = lines[:len(lines)-1]
	}
	lines = lines[:min(len(lines), 200)]
	var best *Format
	most := -1
	for _, name := range []string{"combined", "json", "common"} {
		f, _ := ParseFormat(name, headers...)
		n := 0
		for _, line := range lines {
			var e Event
			if f.Parse(strings.TrimRight(line, "\r\n"), &e) == nil {
				n++
			}
		}
		if n > most {
			best, most = f, n
		}
	}
	return best
}

// advance reads until some events are ready, or the file ends.
func (s *stream) advance() error {
	s.ready, s.sent = s.ready[:0], 0
	disorder, most := s.log.Disorder, s.log.MaxPending
	if disorder == 0 {
		disorder = defaultDisorder
	}
	if most == 0 {
		most = defaultMaxPending
	}
	for !s.ended {
		var e arrival
		ok, err := s.next(&e)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if e.At.Before(s.last) && !(e.whole && s.last.Sub(e.At) < time.Second) { // else the rest of a second that was too large
			s.log.Stats.Late++
			e.At = s.last
		}
		s.pending.push(e)
		if e.At.After(s.newest) {
			s.newest = e.At
		}
		// A batch a time, so that the second of the oldest is complete.
		if oldest := s.pending.front().At; s.pending.len() >= most || s.newest.Sub(oldest) > disorder+time.Second {
			s.release(s.newest.Add(-disorder), most)
			if len(s.ready) > 0 {
				return nil
			}
		}
	}
	s.release(time.Time{}, most)
	return nil
}

// release makes the events before an instant ready, and more if there are too many; with the zero time all of one second or
// more.
func (s *stream) release(before time.Time, most int) {
	before = before.Truncate(time.Second)
	for s.pending.len() > 0 {
		second := s.pending.front().At.Truncate(time.Second)
		if !before.IsZero() && !second.Before(before) && s.pending.len() < most {
			return
		}
		// All that are left of its second.
		from, whole := len(s.ready), 0
		end := second.Add(time.Second)
		for s.pending.len() > 0 && s.pending.front().At.Before(end) {
			a := s.pending.pop()
			if a.whole {
				whole++
			}
			s.ready = append(s.ready, a.Event)
		}
		if n := len(s.ready) - from; n == whole && !s.log.Whole {
			start := second
			if s.last.After(start) { // the rest of a second that was too large to be kept whole
				start = s.last
			}
			room := end.Sub(start)
			for i := range n {
				s.ready[from+i].At = start.Add((room * time.Duration(i) / time.Duration(n)).Truncate(time.Microsecond))
			}
			s.log.Stats.Spread += int64(n)
		}
		for i := range s.ready[from:] { // a whole second where part of that second is out
			if e := &s.ready[from+i]; e.At.Before(s.last) {
				s.log.Stats.Late++
				e.At = s.last
			}
		}
		if n := len(s.ready); n > 0 {
			s.last = s.ready[n-1].At
		}
		if before.IsZero() && len(s.ready) > 0 {
			return
		}
	}
}

// next reads lines until one can be read.
func (s *stream) next(e *arrival) (bool, error) {
	stats := &s.log.Stats
	for !s.ended {
		data, err := s.r.ReadSlice('\n')
		long := false
		for err == bufio.ErrBufferFull {
			if !long {
				long, data = true, slices.Clone(data[:shownText])
			}
			_, err = s.r.ReadSlice('\n')
		}
		if err == io.EOF {
			s.ended = true
			if len(data) == 0 {
				return false, nil
			}
		} else if breaksOff(err) {
			s.ended = true
			stats.Broken = append(stats.Broken, BadLine{File: s.name, Line: s.line + 1, Why: "breaks off: " + err.Error()})
			if len(data) == 0 {
				return false, nil
			}
		} else if err != nil {
			return false, fmt.Errorf("traffic: %s: after line %d: %w", s.name, s.line, err)
		}
		stats.Lines++
		s.line++
		line := strings.TrimRight(string(data), "\r\n")
		var why error
		switch {
		case long:
			why = fmt.Errorf("over %d bytes", maxLine)
		case strings.Trim(line, " \t") == "":
			stats.Empty++
			continue
		default:
			why = s.format.parse(line, &e.Event, &s.m)
		}
		if why == nil {
			stats.Events++
			e.whole, e.n = s.m.whole, s.line
			return true, nil
		}
		stats.Unreadable++
		keep := s.log.Keep
		if keep == 0 {
			keep = defaultKeep
		}
		if s.bad < keep {
			s.bad++
			text := strings.ToValidUTF8(line[:min(len(line), shownText)], "�")
			if len(line) > shownText {
				text += "…"
			}
			stats.Bad = append(stats.Bad, BadLine{File: s.name, Line: s.line, Text: text, Why: why.Error()})
		}
	}
	return false, nil
}

// breaksOff reports whether err says that a compressed file has no end, or a spoilt one.
func breaksOff(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.As(err, &corrupt)
}

// arrival is an event that waits to be put in order.
type arrival struct {
	Event
	whole bool
	n     int64 // its line: equals stay in the order of the file
}

// pending are the events of a file that wait, the earliest first. Those that come in order, which is most, stay in a queue; only the
// others go through a heap.
type pending struct {
	queue []arrival // from first on
	first int
	heap  arrivals
}

func (p *pending) len() int { return len(p.queue) - p.first + len(p.heap) }

func (p *pending) push(a arrival) {
	if n := len(p.queue); n == p.first || !a.At.Before(p.queue[n-1].At) {
		p.queue = append(p.queue, a)
		return
	}
	heap.Push(&p.heap, a)
}

// front is the earliest; there must be one.
func (p *pending) front() *arrival {
	if p.first == len(p.queue) || len(p.heap) > 0 && p.heap[0].before(&p.queue[p.first]) {
		return &p.heap[0]
	}
	return &p.queue[p.first]
}

func (p *pending) pop() arrival {
	a := p.front()
	if len(p.heap) > 0 && a == &p.heap[0] {
		return heap.Pop(&p.heap).(arrival)
	}
	out := *a
	*a = arrival{}
	if p.first++; p.first > len(p.queue)/2 {
		n := copy(p.queue, p.queue[p.first:])
		clear(p.queue[n:])
		p.queue, p.first = p.queue[:n], 0
	}
	return out
}

func (a *arrival) before(b *arrival) bool {
	if c := a.At.Compare(b.At); c != 0 {
		return c < 0
	}
	return a.n < b.n
}

// arrivals is a heap, the earliest first.
type arrivals []arrival

func (p arrivals) Len() int           { return len(p) }
func (p arrivals) Less(i, j int) bool { return p[i].before(&p[j]) }
func (p arrivals) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *arrivals) Push(x any)        { *p = append(*p, x.(arrival)) }
func (p *arrivals) Pop() any {
	old := *p
	n := len(old) - 1
	x := old[n]
	old[n] = arrival{}
	*p = old[:n]
	return x
}
