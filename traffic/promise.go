package traffic

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Promises are what a class was told by Retry-After, and whether it held when a client did as it was told.
//
// Of the clients that are refused, a sample does what the answer said: it waits exactly the time of Retry-After, counted from when the
// answer came (of a date, the time from the answer's Date to it), and asks for the same again. These requests come on top of the
// events, under the same ceiling, and are counted here alone. The events of that client go on meanwhile, since they were fixed in
// advance; and so do those of others. So if it is refused again, that need not be the server's fault: a place may be taken by a
// request that was under way at any time between the sending of the refused request and the answer to the return, and that was not
// refused with 429 itself. Where one of the same client was, the promise counts as Taken. Where only others' were, it
// cannot be told from outside whether they share a limit with it: Unclear. Where there was none, nothing but the server explains the
// refusal: Broken. A client that is refused again waits again, up to five times; after the last event nothing disturbs it any more,
// and what was unclear becomes clear.
//
// A refused request is taken to use nothing up. A server that counts those too breaks its promise to one client because of what
// another asked that it can not see, and is shown so.
type Promises struct {
	Given   int64 // 429s to events that said when to come back
	Missing int64 // 429s to events that did not, or not in a form that can be read
	TooLong int64 // of Given: more than Drive.Linger, so that nobody was made to wait for it

	Kept    int64 // came back as told, and was not refused
	Taken   int64 // refused again, and a request of the same client was served meanwhile
	Unclear int64 // refused again, and only others were served meanwhile
	Broken  int64 // refused again, and nobody was served meanwhile
	Lost    int64 // came back, and there was no answer, or 5xx; or it could not be sent
	Open    int64 // still waited when the run ended

	Example *BrokenPromise // the first one; nil: none
}

// BrokenPromise is one client that did as it was told, for nothing.
type BrokenPromise struct {
	Client   string        `json:"client"`
	Request  string        `json:"request"`
	Said     string        `json:"said"` // Retry-After, as it was
	Waited   time.Duration `json:"waited_ns"`
	ThenSaid string        `json:"then_said"` // the Retry-After of the second refusal
}

// Followed is how many promises a client waited for.
func (p *Promises) Followed() int64 {
	return p.Kept + p.Taken + p.Unclear + p.Broken + p.Lost + p.Open
}

// Merge adds everything that o counted.
func (p *Promises) Merge(o *Promises) {
	p.Given += o.Given
	p.Missing += o.Missing
	p.TooLong += o.TooLong
	p.Kept += o.Kept
	p.Taken += o.Taken
	p.Unclear += o.Unclear
	p.Broken += o.Broken
	p.Lost += o.Lost
	p.Open += o.Open
	p.Example = cmp.Or(p.Example, o.Example)
}

// promise is what one client was told.
type promise struct {
	since    time.Time // when the request that was refused had been sent
	answered time.Time
	said     string
	link     int    // 1 for the first in a row
	then     string // what the second refusal said
}

// mostLinks is how often in a row a client comes back.
const mostLinks = 5

// suspicion is a promise that looks broken, until the requests that were open then have their answers.
type suspicion struct {
	class   int
	call    *call // the one that was refused again
	pending int
	others  bool // others were served meanwhile
	over    bool
}

// tracked is what is known of a client that has requests under way, or waits.
type tracked struct {
	open    int
	waiting bool
	served  time.Time // when one of its requests last ended otherwise than by 429
}

// watch follows refused clients. Its memory is bounded by the requests that are open at once. Its caller locks.
type watch struct {
	open      map[*call]struct{}
	clients   map[string]*tracked
	served    time.Time // as of tracked, of anybody
	perClient bool
	waiting   []int       // clients that wait, by class
	next      []time.Time // when the next one may be made to, by class
}

func (w *watch) sent(c *call) {
	w.open[c] = struct{}{}
	w.client(c.client).open++
}

func (w *watch) client(name string) *tracked {
	t := w.clients[name]
	if t == nil {
		t = &tracked{}
		w.clients[name] = t
	}
	return t
}

func (w *watch) forget(name string) {
	if t := w.clients[name]; t != nil && t.open == 0 && !t.waiting {
		delete(w.clients, name)
	}
}

// obey is asked after each answer whether its client is made to do as it says.
func (r *driving) obey(s *Shot, resp *http.Response) (next Shot, after time.Duration, ok bool) {
	if resp.StatusCode != http.StatusTooManyRequests {
		return next, 0, false
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	c, w := s.call, &r.watch
	p := &r.result.Classes[s.Class].Promises
	said := strings.Join(resp.Header.Values("Retry-After"), ", ")
	after, told := retryAfter(resp.Header, now)
	linger := cmp.Or(r.Linger, defaultLinger)
	if c.promise == nil {
		switch {
		case !told:
			p.Missing++
		default:
			p.Given++
			if after > linger {
				p.TooLong++
			}
		}
	} else {
		c.promise.then = said
	}
	samples := cmp.Or(r.Samples, defaultSamples)
	client := w.client(c.client)
	link := 1
	switch {
	case !told || after > linger || r.requests.Load() >= r.maxRequests():
		return next, 0, false
	case c.promise != nil:
		// It has its place in the sample already. One who may come back at once comes only once: that is no loop to be in.
		if link = c.promise.link + 1; link > mostLinks || after == 0 {
			return next, 0, false
		}
	case client.waiting || w.waiting[s.Class] >= samples || now.Before(w.next[s.Class]):
		return next, 0, false
	default:
		w.waiting[s.Class]++
		w.next[s.Class] = now.Add(time.Second / time.Duration(samples)) // some of each second, whatever they are told
		client.waiting = true
	}
	req, err := r.request(&c.event, r.bodies[s.Class])
	if err != nil { // it was one before
		panic(err)
	}
	p.Open++
	again := &call{event: c.event, class: c.class, client: c.client, promise: &promise{since: c.sent, answered: now, said: said, link: link}}
	c.chained = true
	return Shot{Class: s.Class, Request: req, call: again}, after, true
}

// ended draws the conclusions from a request that has its result.
func (w *watch) ended(classes []ClassDriven, c *call, res Result, cut bool) {
	delete(w.open, c)
	client := w.client(c.client)
	client.open--
	served := res.Status != http.StatusTooManyRequests // without an answer it may have been
	if served {
		client.served = time.Now()
		w.served = client.served
	}
	for _, s := range c.suspects {
		s.pending--
		if served && !s.over {
			switch {
			case cut:
				s.end(classes, &classes[s.class].Promises.Open)
			case s.call.client == c.client:
				s.end(classes, &classes[s.class].Promises.Taken)
			default:
				s.others = true
			}
		}
		if s.pending == 0 && !s.over {
			s.conclude(classes)
		}
	}
	if c.promise != nil {
		w.judge(classes, c, res, cut)
		w.release(c)
	}
	w.forget(c.client)
}

// unsent is for a client that could not come back.
func (w *watch) unsent(class *ClassDriven, c *call, cut bool) {
	if !cut {
		class.Promises.Open--
		class.Promises.Lost++
	}
	w.release(c)
	w.forget(c.client)
}

// release gives the place of a client in the sample to another, unless it has been told to wait again.
func (w *watch) release(c *call) {
	if !c.chained {
		w.waiting[c.class]--
		w.client(c.client).waiting = false
	}
}

// judge is about a client that came back as it was told.
func (w *watch) judge(classes []ClassDriven, c *call, res Result, cut bool) {
	p := &classes[c.class].Promises
	switch {
	case cut:
		return // still open
	case res.Err != nil || res.Status >= 500:
		p.Open--
		p.Lost++
		return
	case res.Status != http.StatusTooManyRequests:
		p.Open--
		p.Kept++
		return
	}
	s := &suspicion{class: c.class, call: c, others: !w.perClient && !w.served.Before(c.promise.since)}
	if !w.client(c.client).served.Before(c.promise.since) {
		s.end(classes, &p.Taken)
		return
	}
	for o := range w.open {
		if o.client == c.client || !s.others && !w.perClient {
			o.suspects = append(o.suspects, s)
			s.pending++
		}
	}
	if s.pending == 0 {
		s.conclude(classes)
	}
}

func (s *suspicion) conclude(classes []ClassDriven) {
	p := &classes[s.class].Promises
	if s.others {
		s.end(classes, &p.Unclear)
		return
	}
	s.end(classes, &p.Broken)
	if p.Example == nil {
		c := s.call
		p.Example = &BrokenPromise{
			Client: c.client, Request: c.event.Method + " " + c.event.Path, Said: c.promise.said,
			Waited: c.sent.Sub(c.promise.answered), ThenSaid: c.promise.then,
		}
	}
}

func (s *suspicion) end(classes []ClassDriven, count *int64) {
	s.over = true
	classes[s.class].Promises.Open--
	*count++
}

// retryAfter is how long an answer asks to wait from when it came: the longest, if it says so more than once. It is
// not ok if it does not say, or not in a form that can be read.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	for _, v := range h.Values("Retry-After") {
		if n, err := strconv.ParseUint(v, 10, 63); err == nil {
			const most = 100 * 365 * 24 * 60 * 60
			wait, ok = max(wait, time.Duration(min(n, most))*time.Second), true
			continue
		}
		at, err := http.ParseTime(v)
		if err != nil {
			return 0, false
		}
		sent, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			sent = now
		}
		wait, ok = max(wait, at.Sub(sent)), true
	}
	return wait, ok
}
