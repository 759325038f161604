package vulnwatch

import (
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

// TestTenThousand: at the NVD's real limit, in virtual time, ten thousand CVEs take hardly longer than any way of asking must, are
// never refused, and fit in memory.
func TestTenThousand(t *testing.T) {
	for name, tc := range map[string]struct {
		key     string
		units   int
		workers int
		latency time.Duration
	}{
		"without a key":                  {"", 5, 5, 4 * time.Second},
		"without a key, slow answers":    {"", 5, 5, 20 * time.Second},
		"with a key, and workers for it": {"the-key", 50, 50, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &nvdtest.Server{World: nvdtest.Synthetic(1, 10_000), Key: "the-key", Latency: tc.latency}
				ids := server.World.IDs()
				nvd := &NVD{URL: "http://nvd.test" + nvdtest.NVDPath, Key: tc.key, Workers: tc.workers}
				nvd.Client = &http.Client{Transport: nvd.Transport(server.RoundTripper())}
				var before, now runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				var peak uint64
				nvd.Progress = func(settled int) {
					if settled%1000 == 0 {
						runtime.ReadMemStats(&now)
						peak = max(peak, now.HeapAlloc)
					}
				}
				began := time.Now()
				answers, err := nvd.Fetch(t.Context(), ids, nil)
				took := time.Since(began)
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range ids {
					if answers[id].Record == nil || answers[id].Record.ID != id {
						t.Fatalf("%s: %+v", id, answers[id])
					}
				}
				bound := batch.Plan{Requests: 100, Units: tc.units, Window: 30 * time.Second, Workers: tc.workers, Latency: tc.latency}.Bound()
				all, refused := server.Asked()
				ratio := float64(took) / float64(bound)
				heap := int64(peak-before.HeapAlloc) >> 20
				t.Logf("%d requests, %d refused, %v: %.4f of the bound %v; %d MiB more heap", all, refused, took, ratio, bound, heap)
				if all != 100 || refused != 0 || ratio > 1.02 {
					t.Errorf("%d requests, %d refused, %.4f of the bound; want 100, 0, at most 1.02", all, refused, ratio)
				}
				if heap > 256 {
					t.Errorf("%d MiB for ten thousand CVEs", heap)
				}
			})
		})
	}
}

// longWay is a network whose delays differ: 30 ms and a log-normal part with the median 50 ms, as they were seen.
type longWay struct {
	to http.RoundTripper

	mu  sync.Mutex
	rnd *rand.Rand
}

func (l *longWay) delay() {
	l.mu.Lock()
	d := 30*time.Millisecond + min(2*time.Second, time.Duration(math.Exp(l.rnd.NormFloat64()-3)*float64(time.Second)))
	l.mu.Unlock()
	time.Sleep(d)
}

// RoundTrip implements http.RoundTripper.
func (l *longWay) RoundTrip(r *http.Request) (*http.Response, error) {
	l.delay()
	resp, err := l.to.RoundTrip(r)
	l.delay()
	return resp, err
}

// TestRequestsThatOvertakeEachOther: the margin of the gate keeps refusals rare where ways differ, for 271 single requests as in the batch
// that this began with. Without a margin a fifth was refused.
func TestRequestsThatOvertakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all, refused int
		var worst float64
		const runs = 10
		for seed := range uint64(runs) {
			server := &nvdtest.Server{World: nvdtest.Synthetic(1, 271), Latency: time.Second}
			nvd := &NVD{URL: "http://nvd.test" + nvdtest.NVDPath, Batch: 1, Workers: 6}
			nvd.Client = &http.Client{Transport: nvd.Transport(&longWay{to: server.RoundTripper(), rnd: rand.New(rand.NewPCG(seed, 1))})}
			began := time.Now()
			answers, err := nvd.Fetch(t.Context(), server.World.IDs(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for id, a := range answers {
				if a.Record == nil {
					t.Fatalf("seed %d: %s: %+v", seed, id, a.Result)
				}
			}
			worst = max(worst, float64(time.Since(began))/float64(1621*time.Second))
			n, no := server.Asked()
			all, refused = all+n, refused+no
			time.Sleep(time.Hour)
		}
		share := float64(refused) / float64(all)
		t.Logf("%d of %d requests refused (%.2f %%); the slowest of %d runs took %.3f of the bound", refused, all, 100*share, runs, worst)
		if share > 0.01 || worst > 1.10 {
			t.Errorf("%.2f %% refused, the slowest run %.3f of the bound; want at most 1 %%, 1.10", 100*share, worst)
		}
	})
}
