package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weir-go/weir"
)

//go:embed decide.lua
var decideText string

var decideScript = newScript(decideText)

type script struct{ text, sha string }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

// ask is one transaction on its way. It belongs to the caller of Apply until a call takes it along, then to
// that call until done; a caller that leaves earlier does not touch it again.
type ask struct {
	tag   string
	alone bool // no other transaction in the same call
	gives bool // needs no room; not in one call with what does, for after it a server that is full would have room
	op    weir.Op
	at    weir.Instant
	cells []cellName
	asked []charge

	done    chan struct{}
	err     error
	now     weir.Instant
	results []int64
}

type cellName struct {
	name string
	key  int // its number among the cells of the call
}

type charge struct {
	cell        int // in cells
	rule        *rule
	law         *[4]string // of rule, as the script reads it
	cost, floor string
}

var asks = sync.Pool{New: func() any { return &ask{done: make(chan struct{}, 1)} }}

func (a *ask) free() {
	*a = ask{done: a.done, cells: a.cells[:0], asked: a.asked[:0], results: a.results[:0]}
	asks.Put(a)
}

var indices = func() (t [4*mostCells + 1]string) {
	for i := range t {
		t[i] = strconv.Itoa(i)
	}
	return
}()

func (s *Store) ask(tx *weir.Tx) (*ask, error) {
	if len(tx.Charges) > mostCells {
		return nil, errTooMany
	}
	a := asks.Get().(*ask)
	a.op = tx.Op
	a.gives = tx.Op == weir.Refund || tx.Op == weir.Reset || tx.Op == weir.Hold && tx.Until == 0
	switch tx.Op {
	case weir.Refund:
		a.at = tx.Made
	case weir.Hold:
		a.at = tx.Until
	}
	for i := range tx.Charges {
		c := &tx.Charges[i]
		r := s.rules.get(c, func(c *weir.TxCharge) *rule { return s.names.rule(s.tag(c.Limit), c) })
		if i == 0 {
			a.tag = r.tag
		} else if r.tag != a.tag && s.clustered() && slot(r.tag) != slot(a.tag) {
			first := tx.Charges[0].Limit
			err := crossSlot(first, c.Limit, a.tag, r.tag)
			a.free()
			return nil, err
		}
		at := len(a.cells)
		if c.Cell == i {
			name := r.hold
			if c.Every {
				a.alone = true // it changes what others in the same call have read
			} else {
				name = s.names.name(r.tag, string(cellKey), r.algorithm, c.Limit.Name, c.Key)
			}
			a.cells = append(a.cells, cellName{name: name})
		} else {
			at = a.asked[c.Cell].cell
		}
		cost := "1"
		if c.Cost != 1 {
			cost = strconv.FormatInt(c.Cost, 10)
		}
		a.asked = append(a.asked, charge{cell: at, rule: r, law: &r.law[kindBits(c)], cost: cost, floor: r.floor[c.Priority-weir.Low]})
	}
	return a, nil
}

// read puts the results into tx.
func (a *ask) read(tx *weir.Tx) {
	r, now := a.results, a.now
	tx.Now, tx.OK, tx.At = now, r[0] == 1, now+weir.Instant(r[1])
	r = r[2:]
	for i := range tx.Charges {
		c := &tx.Charges[i]
		c.When, c.Left, c.Next, c.Held = now+weir.Instant(r[0]), r[1], 0, 0
		if next := weir.Instant(r[2]); next > 0 {
			c.Next = now + next
		} else if next < 0 { // a hold
			c.Next, c.Held = now-next, now-next
		}
		r = r[3:]
	}
}

// lane is the asks that can go in one call: those of one hash tag.
type lane struct {
	mu      sync.Mutex
	queue   []*ask
	calling int
}

func (s *Store) lane(tag string) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[tag]
	if l == nil {
		l = &lane{}
		s.lanes[tag] = l
	}
	return l
}

// enter puts a into the next call, which starts at once unless too many are under way.
func (l *lane) enter(s *Store, a *ask) {
	most := s.Calls
	if most <= 0 {
		most = defaultCalls
	}
	l.mu.Lock()
	l.queue = append(l.queue, a)
	start := l.calling < most
	if start {
		l.calling++
	}
	l.mu.Unlock()
	if start {
		go s.serve(l)
	}
}

// leave takes a out of the queue, if no call has taken it along.
func (l *lane) leave(a *ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.queue, a); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
}

// take is the asks of the next call: as many from the head as fit, of those that can go with the first.
func (l *lane) take(into []*ask) []*ask {
	l.mu.Lock()
	defer l.mu.Unlock()
	cells := 0
	kept := l.queue[:0]
	for i, a := range l.queue {
		if len(into) > 0 {
			if a.gives != into[0].gives {
				kept = append(kept, a)
				continue
			}
			if len(into) == mostTxs || cells+len(a.cells) > mostCells || a.alone || into[0].alone {
				kept = append(kept, l.queue[i:]...)
				break
			}
		}
		cells += len(a.cells)
		into = append(into, a)
	}
	clear(l.queue[len(kept):])
	l.queue = kept
	if len(into) == 0 {
		l.calling--
	}
	return into
}

// serve makes calls until nobody waits.
func (s *Store) serve(l *lane) {
	var batch []*ask
	for {
		batch = l.take(batch[:0])
		if len(batch) == 0 {
			return
		}
		err := s.call(batch)
		for _, a := range batch {
			a.err = err
			a.done <- struct{}{}
		}
	}
}

// call makes the decisions of a batch in one run of the script, and sets their results.
func (s *Store) call(batch []*ask) error {
	s.calls.Add(1)
	s.txs.Add(int64(len(batch)))
	err := s.run(batch)
	if err != nil {
		s.failed.Add(1)
	}
	return err
}

func (s *Store) run(batch []*ask) error {
	text, err := s.eval(batch)
	if err != nil {
		return err
	}
	var now [1]int64
	if _, text, err = numbers(now[:0], text, 1); err != nil {
		return err
	}
	for _, a := range batch {
		n := 2 + 3*len(a.asked)
		a.now = weir.Instant(now[0])
		if a.results, text, err = numbers(a.results[:0], text, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) eval(batch []*ask) (string, error) {
	args := s.args(batch)
	ctx := context.Background()
	if s.Timeout >= 0 {
		timeout := s.Timeout
		if timeout == 0 {
			timeout = defaultTimeout
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	reply, err := s.Client.Do(ctx, args...)
	if err != nil && strings.Contains(err.Error(), "NOSCRIPT") {
		s.evals.Add(1)
		args = slices.Clone(args) // the client may still be looking at the old ones
		args[0], args[1] = "EVAL", s.script.text
		reply, err = s.Client.Do(ctx, args...)
	}
	if err != nil {
		switch text := err.Error(); {
		case strings.Contains(text, "OOM command not allowed"):
			return "", ErrFull
		case strings.Contains(text, "CROSSSLOT"):
			return "", fmt.Errorf("weir: redis: %w of the Cluster", ErrCrossSlot)
		}
		return "", fmt.Errorf("weir: redis: %w", err)
	}
	switch r := reply.(type) {
	case string:
		return r, nil
	case []byte:
		return string(r), nil
	}
	return "", fmt.Errorf("weir: redis: the client's reply is %T, want string", reply)
}

// args is the command for a batch.
func (s *Store) args(batch []*ask) []string {
	cells, charges := 0, 0
	for _, a := range batch {
		cells += len(a.cells)
		charges += len(a.asked)
	}
	// A cell or a law that several transactions have is sent once.
	var room [8]charge
	laws := room[:0]
	for _, a := range batch {
		for _, ch := range a.asked {
			if lawAt(laws, ch.law) < 0 {
				laws = append(laws, ch)
			}
		}
	}
	args := make([]string, 3, 6+cells+6*len(laws)+3*len(batch)+4*charges)
	args[0], args[1] = "EVALSHA", s.script.sha
	var seen map[string]int
	if len(batch) > 1 {
		seen = make(map[string]int, cells)
	}
	n := 0
	for _, a := range batch {
		for i := range a.cells {
			c := &a.cells[i]
			if c.key = seen[c.name]; c.key != 0 {
				continue
			}
			n++
			c.key = n
			if seen != nil {
				seen[c.name] = n
			}
			args = append(args, c.name)
		}
	}
	for i := range laws {
		args = append(args, laws[i].rule.hold)
	}
	args[2] = strconv.Itoa(n + len(laws))
	now := "-"
	if s.Now != nil {
		now = strconv.FormatInt(int64(weir.InstantOf(s.Now())), 10)
	}
	args = append(args, now, s.grace, indices[len(laws)])
	for i := range laws {
		args = append(args, laws[i].law[:]...)
		args = append(args, indices[n+1+i])
	}
	for _, a := range batch {
		at := "0"
		if a.at != 0 {
			at = strconv.FormatInt(int64(a.at), 10)
		}
		args = append(args, indices[a.op], at, indices[len(a.asked)])
		for i := range a.asked {
			c := &a.asked[i]
			args = append(args, indices[a.cells[c.cell].key], indices[1+lawAt(laws, c.law)], c.cost, c.floor)
		}
	}
	return args
}

func lawAt(laws []charge, law *[4]string) int {
	return slices.IndexFunc(laws, func(c charge) bool { return c.law == law })
}

// numbers reads n numbers from the start of text.
func numbers(into []int64, text string, n int) ([]int64, string, error) {
	for i := 0; i < len(text) && len(into) < n; i++ {
		negative := text[i] == '-'
		if negative {
			i++
		}
		start := i
		var v int64
		for ; i < len(text) && text[i] != ' '; i++ {
			d := text[i] - '0'
			if d > 9 || i-start > 17 {
				return nil, "", fmt.Errorf("weir: redis: the script's reply has %.20q for a number", text[start:])
			}
			v = 10*v + int64(d)
		}
		if negative {
			v = -v
		}
		into = append(into, v)
		if len(into) == n {
			return into, text[min(i+1, len(text)):], nil
		}
	}
	return nil, "", fmt.Errorf("weir: redis: the script's reply is %d numbers short", n-len(into))
}
