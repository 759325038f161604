package blackfriday

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weir-go/weir/traffic"
)

// Demo is what to show. Its zero value is the demo as documented.
type Demo struct {
	Act    time.Duration // how long the wave is, in each of two acts; zero means 12 s
	Factor float64       // how many times the backend's capacity arrives at the peak; zero means 3.5

	// Progress, if not nil, is told several times a second how it goes, one call at a time.
	Progress func(Progress)
}

// Progress is how far a part of the demo is.
type Progress struct {
	Part string
	Done float64 // of this part: 0 to 1, and 1 once, at its end
	Last traffic.Tally
}

// ErrTooSlow means that this machine cannot carry even a small wave.
var ErrTooSlow = errors.New("demo: this machine is too slow or too busy to show anything")

// Run calibrates, plays both acts and reports. It takes two acts and about five seconds.
func (d Demo) Run(ctx context.Context) (*Report, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // memory is little here, and the machine has two sides to run
	begin := time.Now()
	p := plan{factor: cmp.Or(d.Factor, 3.5), length: cmp.Or(d.Act, 12*time.Second)}
	report := &Report{Machine: Machine{runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version()}}
	if err := d.calibrate(ctx, &p, report); err != nil {
		return nil, err
	}
	report.plan(p)
	for _, limited := range []bool{false, true} {
		name := "without weir"
		if limited {
			name = "with weir"
		}
		a := act{plan: p, limited: limited, length: p.length}
		if err := a.run(ctx, p.wave(), d.progress(name)); err != nil {
			return nil, err
		}
		report.Acts = append(report.Acts, a.report(name))
		if limited {
			report.Refusal = a.refusal
		}
	}
	report.Seconds = round(time.Since(begin).Seconds(), 1)
	report.conclude()
	return report, nil
}

func (d Demo) progress(part string) func(float64, traffic.Tally) {
	return func(done float64, last traffic.Tally) {
		if d.Progress != nil {
			d.Progress(Progress{part, done, last})
		}
	}
}

// calibrate finds a capacity of which the wave can be sent, passed on and answered by this machine, all at once. It tries
// the backend below its capacity, and whether the peak of the wave can be sent on time.
func (d Demo) calibrate(ctx context.Context, p *plan, report *Report) error {
	progress := d.progress("calibration")
	progress(0, traffic.Tally{})
	path, err := measurePath(ctx, *p)
	if err != nil {
		return err
	}
	report.PathPerSecond = math.Round(path)
	// Not all of the path, since other programs run too, and no more than there are files to open.
	p.capacity = niceBelow(min(wantCapacity, path*0.4/max(1, p.factor), capacityOf(maxFiles())))
	if p.capacity < 20 {
		return ErrTooSlow
	}
	for {
		below := act{plan: *p, length: time.Second}
		if err := below.run(ctx, traffic.Steady(0.9*p.capacity, below.length), nil); err != nil {
			return err
		}
		peak := act{plan: *p, length: time.Second, limited: true}
		if err := peak.run(ctx, traffic.Steady(p.factor*p.capacity, peak.length), nil); err != nil {
			return err
		}
		served, sent := below.total(), peak.total()
		report.Trial = Trial{
			PerSecond: math.Round(float64(served.OK) / below.length.Seconds()),
			P99:       ms(served.Latency.Quantile(0.99)),
			LateShare: round(float64(sent.Late)/float64(max(1, sent.Sent)), 4),
		}
		fits := served.OK == served.Sent && served.Latency.Quantile(0.99) <= within && sent.Late*50 <= sent.Sent
		half := niceBelow(p.capacity / 2)
		if fits || half < 150 { // so few workers make a line at nine tenths anyway
			progress(1, served)
			return nil
		}
		p.capacity = half
	}
}

// capacityOf is the capacity for which this many files are enough: a connection has four ends in this process, two on
// each side of the proxy.
func capacityOf(files float64) float64 { return (files - 500) / (4 * connectionsPer) }

// niceBelow is x or a little less, with few digits.
func niceBelow(x float64) float64 {
	step := 50.0
	if x < 200 {
		step = 10
	}
	return math.Floor(x/step) * step
}

// measurePath is how many requests a second go through the proxy, with limits that refuse none, to a server that answers
// at once.
func measurePath(ctx context.Context, p plan) (float64, error) {
	p.capacity = 1e6 // nothing is refused
	s, err := open(p, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, `{"status":"done"}`) }))
	if err != nil {
		return 0, err
	}
	defer s.close()
	const (
		clients = 32
		warmUp  = 300 * time.Millisecond
		length  = time.Second
	)
	ctx, cancel := context.WithTimeoutCause(ctx, warmUp+length, errDone)
	defer cancel()
	var (
		begin = time.Now()
		n     [clients]int
		errs  [clients]error
		all   sync.WaitGroup
	)
	for i := range clients {
		all.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				r := request(&classes[orders], s.address, fmt.Sprintf("198.18.%d.%d", i, j%250+1))
				resp, err := s.client.RoundTrip(r.WithContext(ctx))
				if err != nil {
					if ctx.Err() == nil {
						errs[i] = err
					}
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if time.Since(begin) > warmUp {
					n[i]++
				}
			}
		})
	}
	all.Wait()
	if cause := context.Cause(ctx); cause != errDone {
		return 0, cause
	}
	sum := 0
	for _, k := range n {
		sum += k
	}
	return float64(sum) / length.Seconds(), errors.Join(errs[:]...)
}

var errDone = errors.New("time is up")

// act is a wave through the proxy.
type act struct {
	plan    plan // of the backend and the limits
	limited bool
	length  time.Duration

	mu      sync.Mutex
	tallies [3]traffic.Tally
	moments [moments]moment // of the orders
	refusal *Refusal
	worked  int64
	wasted  int64
}

// moments are how many parts of an act the timeline shows.
const moments = 60

type moment struct{ sent, served int64 }

func (a *act) run(ctx context.Context, wave traffic.Profile, progress func(float64, traffic.Tally)) error {
	backend := a.plan.backend()
	s, err := open(a.plan, a.limited, backend)
	if err != nil {
		return err
	}
	defer s.close()
	if progress != nil {
		stop := a.watch(progress)
		defer stop()
	}
	load := traffic.Load{Transport: s.client, Timeout: 3 * time.Second, Inspect: a.inspect}
	err = load.Run(ctx, shots(wave, s.address), a.add)
	a.worked, a.wasted = backend.Work()
	return err
}

func (a *act) add(s *traffic.Shot, r traffic.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tallies[s.Class].Add(r)
	if s.Class == orders {
		m := &a.moments[min(moments-1, int(s.At*moments/a.length))]
		m.sent++
		if r.Err == nil && r.Status == http.StatusOK {
			m.served++
		}
	}
}

// inspect keeps the first refusal of the runaway client.
func (a *act) inspect(s *traffic.Shot, resp *http.Response) {
	if s.Class != runawayClient || resp.StatusCode != http.StatusTooManyRequests {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refusal == nil {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // a body cut short shows as such
		a.refusal = &Refusal{Status: resp.Proto + " " + resp.Status, Header: resp.Header.Clone(), Body: string(text)}
	}
}

func (a *act) total() (all traffic.Tally) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.tallies {
		all.Merge(&a.tallies[i])
	}
	return all
}

// watch tells how it goes until stop is called, and then that it is done.
func (a *act) watch(progress func(float64, traffic.Tally)) (stop func()) {
	begin, quit, gone := time.Now(), make(chan struct{}), make(chan struct{})
	progress(0, traffic.Tally{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				progress(min(0.999, time.Since(begin).Seconds()/a.length.Seconds()), a.total())
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
		progress(1, a.total())
	}
}

// stage is a backend, the proxy in front of it, and a client, over loopback.
type stage struct {
	address string // of the proxy
	client  *http.Transport
	close   func()
}

func open(p plan, limited bool, backend http.Handler) (*stage, error) {
	upstream, closeBackend, err := serve(backend)
	if err != nil {
		return nil, err
	}
	door, err := newDoor("http://"+upstream, p, limited)
	if err != nil {
		closeBackend()
		return nil, err
	}
	address, closeProxy, err := serve(door)
	if err != nil {
		closeBackend()
		return nil, err
	}
	client := &http.Transport{
		MaxConnsPerHost:     p.connections(),
		MaxIdleConnsPerHost: p.connections(),
		DisableCompression:  true,
	}
	return &stage{address, client, func() {
		client.CloseIdleConnections()
		closeProxy()
		closeBackend()
	}}, nil
}

// serve starts a server on a free port of the loopback interface.
func serve(h http.Handler) (address string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("demo: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	var running sync.WaitGroup
	running.Go(func() { server.Serve(l) }) // until it is closed
	return l.Addr().String(), func() {
		server.Close()
		running.Wait()
	}, nil
}
